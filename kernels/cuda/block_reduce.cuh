// SPDX-License-Identifier: Apache-2.0
// Reductions over blocks whose size is known at the launch.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/reduce.cuh"

namespace vocabpipe::kernels::cuda {

struct Sum {
    __device__ static float over_warp(float value) { return warp_sum(value); }
    static constexpr float kNeutral = 0.0F;
};

struct Maximum {
    __device__ static float over_warp(float value) { return warp_max(value); }
    static constexpr float kNeutral = -INFINITY;
};

/// Replaces each of the values by its reduction over the threads of a one-dimensional block of
/// whole warps, in an order that depends on their number only. All threads call it.
template <typename Reduction, int kValues>
__device__ __forceinline__ void block_reduce(float (&values)[kValues]) {
    __shared__ float by_warp[kValues][kWarpThreads];
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
    __syncthreads();  // the previous call's values have been read
    for (int i = 0; i < kValues; ++i) {
        values[i] = Reduction::over_warp(values[i]);
        if (lane == 0) by_warp[i][warp] = values[i];
    }
    __syncthreads();
    for (int i = 0; i < kValues; ++i) {
        values[i] = Reduction::over_warp(lane < warps ? by_warp[i][lane] : Reduction::kNeutral);
    }
}

}  // namespace vocabpipe::kernels::cuda
