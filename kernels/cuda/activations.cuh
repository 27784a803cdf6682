// SPDX-License-Identifier: Apache-2.0
// The functions of kernels/activation.hpp with their derivatives; what a caller does not use the
// compiler leaves out.
#pragma once

#include <cuda_runtime.h>

namespace vocabpipe::kernels::cuda {

struct ValueAndSlope {
    float value, slope;
};

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

/// By (1 + tanh(u)) / 2 = sigmoid(2u), without the cancellation of 1 + tanh(u) for negative u.
__device__ __forceinline__ ValueAndSlope gelu(float x) {
    constexpr float kTwiceSlope = 1.5957691216057308F;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    const float s = sigmoid(kTwiceSlope * (x + kCubic * x * x * x));
    const float slope = kTwiceSlope * (1.0F + 3.0F * kCubic * x * x);
    return {x * s, s + x * s * (1.0F - s) * slope};
}

__device__ __forceinline__ ValueAndSlope silu(float x) {
    const float s = sigmoid(x);
    return {x * s, s + x * s * (1.0F - s)};
}

}  // namespace vocabpipe::kernels::cuda
