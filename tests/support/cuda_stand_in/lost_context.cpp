// SPDX-License-Identifier: Apache-2.0
#include "lost_context.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "control.hpp"
#include "race_checker.hpp"

namespace cuda_stand_in {

namespace {

struct LostContexts {
    std::atomic<bool> any{false};
    std::atomic<bool> awaited{false};
    std::mutex mutex;  ///< of what follows
    std::string name;  ///< part of the kernel's
    cudaError_t error = cudaSuccess;
    std::map<int, cudaError_t> lost;  ///< by device
};

LostContexts& contexts() {
    static auto* const all = new LostContexts;
    return *all;
}

}  // namespace

void fail_kernel(cudaError_t error, std::string_view name) {
    const UnseenLock lock(contexts().mutex);
    contexts().error = error;
    contexts().name = name;
    contexts().awaited.store(true, std::memory_order_relaxed);
}

void restore_contexts() {
    const UnseenLock lock(contexts().mutex);
    contexts().lost.clear();
    contexts().any.store(false, std::memory_order_relaxed);
    contexts().awaited.store(false, std::memory_order_relaxed);
}

cudaError_t context_error(int device) {
    if (!contexts().any.load(std::memory_order_relaxed)) return cudaSuccess;
    const UnseenLock lock(contexts().mutex);
    const auto found = contexts().lost.find(device);
    return found == contexts().lost.end() ? cudaSuccess : found->second;
}

bool awaits_failing_kernel() {
    return contexts().awaited.load(std::memory_order_relaxed);
}

bool fails(int device, std::string_view kernel) {
    const UnseenLock lock(contexts().mutex);
    if (!awaits_failing_kernel() || kernel.find(contexts().name) == std::string_view::npos) {
        return false;
    }
    contexts().awaited.store(false, std::memory_order_relaxed);
    contexts().lost[device] = contexts().error;
    contexts().any.store(true, std::memory_order_relaxed);
    return true;
}

}  // namespace cuda_stand_in
