// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "hooks.hpp"
#include "race_checker.hpp"
#include "stream.hpp"

namespace cuda_stand_in {

namespace {

constexpr size_t alignment = 512;  ///< what cudaMalloc of a current driver gives; 256 are promised

struct Range {
    size_t bytes;
    int device;
    bool owned;  ///< false: registered, not allocated
};
using Ranges = std::map<const char*, Range>;

/// Bytes as they were asked for, and what they take of the device: a driver takes physical memory
/// in pages, of which small allocations share some.
struct Usage {
    size_t now = 0;
    size_t peak = 0;
    size_t small = 0;  ///< of now: in shared pages
    size_t pages = 0;  ///< bytes of the pages of the others

    static constexpr size_t page = size_t{2} << 20;
    [[nodiscard]] static bool is_small(size_t bytes) { return bytes <= page / 2; }
    [[nodiscard]] static size_t in_pages(size_t bytes) { return (bytes + page - 1) / page * page; }
    void add(size_t bytes) {
        now += bytes;
        peak = std::max(peak, now);
        (is_small(bytes) ? small : pages) += is_small(bytes) ? bytes : in_pages(bytes);
    }
    void remove(size_t bytes) {
        now -= bytes;
        (is_small(bytes) ? small : pages) -= is_small(bytes) ? bytes : in_pages(bytes);
    }
    [[nodiscard]] size_t taken() const { return in_pages(small) + pages; }
};

struct Memory {
    std::mutex mutex;
    Ranges device;
    Ranges host;
    std::map<int, Usage> usage;
    std::map<int, bool> loaded;  ///< modules
};

Memory& memory() {
    static auto* const all = new Memory;
    return *all;
}

Ranges::const_iterator containing(const Ranges& ranges, const void* address) {
    const auto* const at = static_cast<const char*>(address);
    auto after = ranges.upper_bound(at);
    if (after == ranges.begin()) {
        return ranges.end();
    }
    --after;
    return at < after->first + std::max<size_t>(after->second.bytes, 1) ? after : ranges.end();
}

/// Fresh memory holds 0xff bytes: NaN as fp32, bf16 and fp64, -1 as an integer.
void* poisoned(size_t bytes) {
    void* const address = std::aligned_alloc(
        alignment, (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment);
    if (address != nullptr) {
        std::memset(address, 0xff, bytes);
    }
    return address;
}

}  // namespace

bool is_device_memory(const void* address, size_t bytes) {
    const UnseenLock lock(memory().mutex);
    const auto found = containing(memory().device, address);
    return found != memory().device.end() &&
           static_cast<size_t>(static_cast<const char*>(address) - found->first) + bytes <=
               found->second.bytes;
}

bool points_to_device(const void* address) {
    const UnseenLock lock(memory().mutex);
    return containing(memory().device, address) != memory().device.end();
}

size_t memory_in_use(int device) {
    const UnseenLock lock(memory().mutex);
    return memory().usage[device].now;
}

size_t memory_peak(int device) {
    const UnseenLock lock(memory().mutex);
    return memory().usage[device].peak;
}

size_t memory_taken(int device) {
    const char* const loading = std::getenv("CUDA_MODULE_LOADING");
    const bool eager = loading != nullptr && std::strcmp(loading, "EAGER") == 0;
    const UnseenLock lock(memory().mutex);
    const size_t modules = eager || memory().loaded[device] ? kModuleBytes : 0;
    return kContextBytes + modules + memory().usage[device].taken();
}

void load_modules(int device) {
    const UnseenLock lock(memory().mutex);
    memory().loaded[device] = true;
}

void reset_memory_peak() {
    const UnseenLock lock(memory().mutex);
    for (auto& [device, usage] : memory().usage) {
        usage.peak = usage.now;
    }
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    *total = memory_bytes();
    *free = *total - std::min(*total, memory_taken(current_device()));
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** devPtr, size_t size) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (devPtr == nullptr) {
        return report(cudaErrorInvalidValue);
    }
    count(&Counters::allocations);
    *devPtr = nullptr;
    if (size == 0) {
        return cudaSuccess;
    }
    const int device = current_device();
    {
        const size_t others = memory_taken(device);
        const UnseenLock lock(memory().mutex);
        Usage& usage = memory().usage[device];
        Usage more = usage;
        more.add(size);
        if (others + more.taken() - usage.taken() > memory_bytes()) {
            return report(cudaErrorMemoryAllocation);
        }
        usage = more;
    }
    void* const address = poisoned(size);
    const UnseenLock lock(memory().mutex);
    if (address == nullptr) {
        memory().usage[device].remove(size);
        return report(cudaErrorMemoryAllocation);
    }
    memory().device.emplace(static_cast<const char*>(address),
                            Range{.bytes = size, .device = device, .owned = true});
    *devPtr = address;
    return cudaSuccess;
}

cudaError_t cudaFree(void* devPtr) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (devPtr == nullptr) {
        return cudaSuccess;
    }
    count(&Counters::frees);
    Range range{};
    {
        const UnseenLock lock(memory().mutex);
        const auto found = memory().device.find(static_cast<const char*>(devPtr));
        if (found == memory().device.end()) {
            return report(cudaErrorInvalidValue);
        }
        range = found->second;
    }
    if (own_stream_runs(range.device)) count(&Counters::busy_frees);
    drain_device(range.device, false);  // as cudaFree does
    {
        const UnseenLock lock(memory().mutex);
        memory().device.erase(static_cast<const char*>(devPtr));
        memory().usage[range.device].remove(range.bytes);
    }
    std::free(devPtr);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (pHost == nullptr) {
        return report(cudaErrorInvalidValue);
    }
    count(&Counters::allocations);
    *pHost = size == 0 ? nullptr : poisoned(size);
    if (size != 0 && *pHost == nullptr) {
        return report(cudaErrorMemoryAllocation);
    }
    if (size != 0) {
        const UnseenLock lock(memory().mutex);
        memory().host.emplace(static_cast<const char*>(*pHost),
                              Range{.bytes = size, .device = current_device(), .owned = true});
    }
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
    return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* ptr) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (ptr == nullptr) {
        return cudaSuccess;
    }
    count(&Counters::frees);
    {
        const UnseenLock lock(memory().mutex);
        const auto found = memory().host.find(static_cast<const char*>(ptr));
        if (found == memory().host.end() || !found->second.owned) {
            return report(cudaErrorInvalidValue);
        }
    }
    if (own_stream_runs(current_device())) count(&Counters::busy_frees);
    drain_device(current_device(), false);  // as cudaFreeHost does
    {
        const UnseenLock lock(memory().mutex);
        memory().host.erase(static_cast<const char*>(ptr));
    }
    std::free(ptr);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (ptr == nullptr || size == 0) {
        return report(cudaErrorInvalidValue);
    }
    const UnseenLock lock(memory().mutex);
    if (containing(memory().host, ptr) != memory().host.end()) {
        return report(cudaErrorHostMemoryAlreadyRegistered);
    }
    memory().host.emplace(static_cast<const char*>(ptr),
                          Range{.bytes = size, .device = current_device(), .owned = false});
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* ptr) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const UnseenLock lock(memory().mutex);
    const auto found = memory().host.find(static_cast<const char*>(ptr));
    if (found == memory().host.end() || found->second.owned) {
        return report(cudaErrorHostMemoryNotRegistered);
    }
    memory().host.erase(found);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* ptr) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    void* const address = const_cast<void*>(ptr);
    const UnseenLock lock(memory().mutex);
    if (const auto device = containing(memory().device, ptr); device != memory().device.end()) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = device->second.device;
        attributes->devicePointer = address;
    } else if (const auto host = containing(memory().host, ptr); host != memory().host.end()) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = host->second.device;
        attributes->devicePointer = address;
        attributes->hostPointer = address;
    }
    return cudaSuccess;
}

}  // extern "C"
