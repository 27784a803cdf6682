// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the threads of a block, in an order that depends on its size only.
#pragma once

#include <cuda_runtime.h>

namespace vocabpipe::kernels::cuda {

inline constexpr int kWarpThreads = 32;

/// Sums over every kLanes lanes, a power of two. All of them get the same bits: at every step a
/// lane and its partner add the same two numbers. All 32 lanes call it.
template <int kLanes = kWarpThreads, typename T>
__device__ __forceinline__ T warp_sum(T value) {
    for (int step = kLanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, step);
    }
    return value;
}

/// Ignores NaN where there is another number.
__device__ __forceinline__ float warp_max(float value) {
    for (int step = kWarpThreads / 2; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, step));
    }
    return value;
}

__device__ __forceinline__ int warp_min(int value) {
    for (int step = kWarpThreads / 2; step > 0; step /= 2) {
        const int other = __shfl_xor_sync(0xffffffffU, value, step);
        value = other < value ? other : value;
    }
    return value;
}

/// Sums over all kThreads threads of the block; each gets the sum. It has one barrier: between two
/// calls in a kernel there must be another one.
template <int kThreads, typename T>
__device__ __forceinline__ T block_sum(T value) {
    static_assert(kThreads % kWarpThreads == 0);
    __shared__ T parts[kThreads / kWarpThreads];
    value = warp_sum(value);
    if (threadIdx.x % kWarpThreads == 0) parts[threadIdx.x / kWarpThreads] = value;
    __syncthreads();
    T total = parts[0];
    for (int warp = 1; warp < kThreads / kWarpThreads; ++warp) total += parts[warp];
    return total;
}

}  // namespace vocabpipe::kernels::cuda
