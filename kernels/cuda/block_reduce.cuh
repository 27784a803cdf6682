// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace vocabpipe::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullWarp = 0xffffffffU;

/// On every lane, the combination of all lanes' values in an order that does not vary.
struct Sum {
    __device__ static float combine(float a, float b) { return a + b; }
    static constexpr float kNeutral = 0.0F;
};

template <typename Combination>
__device__ __forceinline__ float warp_reduce(float value) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        value = Combination::combine(value, __shfl_xor_sync(kFullWarp, value, distance));
    }
    return value;
}

/// Replaces each of the values by its combination over the threads of a one-dimensional block whose
/// size is a multiple of a warp. All threads call it.
template <typename Combination, int kValues>
__device__ __forceinline__ void block_reduce(float (&values)[kValues]) {
    __shared__ float by_warp[kValues][kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    __syncthreads();  // the previous call's values have been read
    for (int i = 0; i < kValues; ++i) {
        values[i] = warp_reduce<Combination>(values[i]);
        if (lane == 0) by_warp[i][warp] = values[i];
    }
    __syncthreads();
    for (int i = 0; i < kValues; ++i) {
        const float value = lane < warps ? by_warp[i][lane] : Combination::kNeutral;
        values[i] = warp_reduce<Combination>(value);
    }
}

}  // namespace vocabpipe::kernels::cuda
