// SPDX-License-Identifier: Apache-2.0
#include "hooks.hpp"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "lost_context.hpp"
#include "memory.hpp"
#include "race_checker.hpp"

namespace cuda_stand_in {

namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

struct Hooks {
    std::atomic<int> devices{static_cast<int>(from_environment("VOCABPIPE_STAND_IN_DEVICES", 1))};
    std::atomic<size_t> memory{
        from_environment("VOCABPIPE_STAND_IN_MEMORY_BYTES", uint64_t{4} << 30)};
    std::atomic<uint32_t> stream_capacity{kStreamCapacity};
    std::atomic<uint64_t> delay_seed{0};
    std::atomic<int64_t> longest_delay{0};
    std::atomic<bool> armed{false};
    std::mutex mutex;  ///< of what follows
    cudaError_t error = cudaSuccess;
    std::string function;
    Counters counters;
};

Hooks& hooks() {
    static auto* const all = new Hooks;
    return *all;
}

struct ThreadState {
    int device = 0;
    cudaError_t last_error = cudaSuccess;
    uint64_t calls = 0;
    uint64_t failing_call = UINT64_MAX;  ///< by number
    cudaError_t error = cudaSuccess;     ///< of that one
};

thread_local ThreadState thread_state;

}  // namespace

void set_device_count(int count) {
    hooks().devices.store(count, std::memory_order_relaxed);
}

int device_count() {
    return hooks().devices.load(std::memory_order_relaxed);
}

void set_memory_bytes(size_t bytes) {
    hooks().memory.store(bytes, std::memory_order_relaxed);
}

size_t memory_bytes() {
    return hooks().memory.load(std::memory_order_relaxed);
}

void set_stream_capacity(uint32_t entries) {
    hooks().stream_capacity.store(entries, std::memory_order_relaxed);
}

uint32_t stream_capacity() {
    return hooks().stream_capacity.load(std::memory_order_relaxed);
}

void set_delays(Delays delays) {
    hooks().delay_seed.store(delays.seed, std::memory_order_relaxed);
    hooks().longest_delay.store(delays.longest.count(), std::memory_order_relaxed);
}

Delays delays() {
    return {.seed = hooks().delay_seed.load(std::memory_order_relaxed),
            .longest =
                std::chrono::microseconds(hooks().longest_delay.load(std::memory_order_relaxed))};
}

void fail_next_call(cudaError_t error, std::string_view function) {
    const UnseenLock lock(hooks().mutex);
    hooks().error = error;
    hooks().function = function;
    hooks().armed.store(error != cudaSuccess, std::memory_order_relaxed);
}

void fail_call_of_this_thread(cudaError_t error, uint64_t number) {
    thread_state.failing_call = thread_state.calls + number;
    thread_state.error = error;
}

Counters counters() {
    const UnseenLock lock(hooks().mutex);
    return hooks().counters;
}

void reset_counters() {
    reset_memory_peak();
    const UnseenLock lock(hooks().mutex);
    hooks().counters = {};
}

void count(uint64_t Counters::*counter) {
    const UnseenLock lock(hooks().mutex);
    ++(hooks().counters.*counter);
}

int current_device() {
    return thread_state.device;
}

void set_current_device(int device) {
    thread_state.device = device;
}

cudaError_t report(cudaError_t error) {
    if (error != cudaSuccess) {
        thread_state.last_error = error;
    }
    return error;
}

cudaError_t enter(const char* function) {
    if (++thread_state.calls == thread_state.failing_call) return report(thread_state.error);
    if (hooks().armed.load(std::memory_order_relaxed)) {
        const UnseenLock lock(hooks().mutex);
        if (hooks().armed && (hooks().function.empty() || hooks().function == function)) {
            hooks().armed.store(false, std::memory_order_relaxed);
            return report(hooks().error);
        }
    }
    if (device_count() == 0) return report(cudaErrorNoDevice);
    return report(context_error(thread_state.device));
}

}  // namespace cuda_stand_in

extern "C" {

cudaError_t cudaGetLastError(void) {
    using cuda_stand_in::thread_state;
    const cudaError_t error = thread_state.last_error;
    thread_state.last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return cuda_stand_in::thread_state.last_error;
}

}  // extern "C"
