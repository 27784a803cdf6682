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
/// What cudaMemGetInfo counts besides allocations, which take pages of 2 MiB: the process's
/// context, and modules from the first launch on, or at once with CUDA_MODULE_LOADING=EAGER.
inline constexpr size_t kContextBytes = size_t{48} << 20;
inline constexpr size_t kModuleBytes = size_t{16} << 20;
/// As asked for with cudaMalloc.
[[nodiscard]] size_t memory_in_use(int device);
/// Highest memory in use since the process started or reset_counters().
[[nodiscard]] size_t memory_peak(int device);

/// Multiprocessors of each device, from the next that is asked for; 0: the few it has by default.
void set_multiprocessors(int count);

/// cublasLtMatmul refuses the first `algorithms` of every list that cublasLtMatmulAlgoGetHeuristic
/// makes from now on. Some lists begin with an algorithm that it refuses anyway.
void refuse_algorithms(int algorithms);

/// The first `algorithms` of every list that the heuristic makes from now on take so much longer.
void slow_algorithms(int algorithms, std::chrono::microseconds longer);

/// The next call of the function (of any function when empty) fails with this error, once.
/// function is the name of a C function: "cudaMalloc".
void fail_next_call(cudaError_t error, std::string_view function = {});

/// The call with this number (1: the next), of those that the calling thread makes from now on,
/// fails with this error. Forgets what was said before.
void fail_call_of_this_thread(cudaError_t error, uint64_t number);

/// The next kernel whose name contains `name` fails when it runs, as one that uses a bad address
/// does on a GPU: it does nothing, and the context is lost. Every call on its device returns
/// `error` from then on, until restore_contexts(). What other streams hold still runs.
/// "cublasLtMatmul" is the name of products.
void fail_kernel(cudaError_t error, std::string_view name);
/// Forgets what fail_kernel() said and did.
void restore_contexts();

/// What a stream holds that has not run: kernels, copies, records and waits of events. One more,
/// and the call blocks until something has run.
inline constexpr uint32_t kStreamCapacity = 1024;
void set_stream_capacity(uint32_t entries);

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
    /// Those during which a stream that the calling thread had made still ran: that they wait for
    /// it is what CUDA does, not what it promises.
    uint64_t busy_frees = 0;
    uint64_t kernel_launches = 0;
    uint64_t matmuls = 0;             ///< cublasLtMatmul
    uint64_t blocked_launches = 0;    ///< of all kinds, that waited because their stream was full
    uint64_t false_dependencies = 0;  ///< work that waited for a stream it shares a connection with
    uint64_t heuristics = 0;          ///< cublasLtMatmulAlgoGetHeuristic
    uint64_t refused_matmuls = 0;     ///< that refused an algorithm which the heuristic had listed
    /// Those that were made for more multiprocessors than NCCL's kernels left free when they began:
    /// on a GPU some of their blocks run in a second round, after all the others.
    uint64_t crowded_matmuls = 0;
    bool operator==(const Counters&) const = default;
};
[[nodiscard]] Counters counters();
void reset_counters();

}  // namespace cuda_stand_in
