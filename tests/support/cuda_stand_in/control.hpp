// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// How tests arrange and observe the stand-in devices. Settings are of the process.
namespace cuda_stand_in {

/// Devices that cudaGetDeviceCount reports; 0 makes every call fail with cudaErrorNoDevice.
/// Default: the environment variable VOCABPIPE_STAND_IN_DEVICES, or 1.
void set_device_count(int count);

/// Memory of each device in bytes. Default: VOCABPIPE_STAND_IN_MEMORY_BYTES, or 4 GiB.
void set_memory_bytes(size_t bytes);
[[nodiscard]] size_t memory_in_use(int device);
/// Highest memory in use since the process started or reset_counters().
[[nodiscard]] size_t memory_peak(int device);

/// The next call of the function (of any function when empty) fails with this error, once.
/// function is the name of a C function: "cudaMalloc".
void fail_next_call(cudaError_t error, std::string_view function = {});

/// Sleeps a random time up to longest before every operation of every stream, and starts the
/// threads of a block in a rotated order: what waits too little reads what is not there yet. The
/// order of blocks is another with every launch and seed, always.
/// Streams draw from the seed and the order of their creation. longest 0 switches it off.
struct Delays {
    uint64_t seed = 0;
    std::chrono::microseconds longest{0};
};
void set_delays(Delays delays);

/// Requests stop_token_of() of every live stream: waits for events end, and so does blocking work
/// that heeds the token.
void stop_streams();

/// Calls since the process started or reset_counters().
struct Counters {
    uint64_t device_synchronisations = 0;  ///< cudaDeviceSynchronize
    uint64_t stream_synchronisations = 0;  ///< cudaStreamSynchronize
    uint64_t event_synchronisations = 0;   ///< cudaEventSynchronize
    uint64_t blocking_copies = 0;          ///< cudaMemcpy and cudaMemset
    uint64_t allocations = 0;              ///< cudaMalloc, cudaMallocHost, cudaHostAlloc
    uint64_t frees = 0;                    ///< cudaFree (waits for the device) and cudaFreeHost
    uint64_t kernel_launches = 0;
    uint64_t matmuls = 0;  ///< cublasLtMatmul
    bool operator==(const Counters&) const = default;
};
[[nodiscard]] Counters counters();
void reset_counters();

}  // namespace cuda_stand_in
