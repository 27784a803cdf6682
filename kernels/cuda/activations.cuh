// SPDX-License-Identifier: Apache-2.0
// The functions of vocabpipe/activation.hpp with their derivatives; the compiler drops the one of
// the two that a caller does not use.
#pragma once

#include <cuda_runtime.h>

#include "vocabpipe/activation.hpp"

namespace vocabpipe::kernels::cuda {

struct ValueAndSlope {
    float value, slope;
};

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

/// Uses (1 + tanh(u)) / 2 = sigmoid(2u), without the cancellation of 1 + tanh(u) for negative u.
struct GeluTanh {
    __device__ __forceinline__ static ValueAndSlope of(float x) {
        constexpr float kTwiceSlope = 1.5957691216057308F;  // 2 sqrt(2 / pi)
        constexpr float kCubic = 0.044715F;
        const float s = sigmoid(kTwiceSlope * (x + kCubic * x * x * x));
        const float slope = kTwiceSlope * (1.0F + 3.0F * kCubic * x * x);
        return {x * s, s + x * s * (1.0F - s) * slope};
    }
};

struct Silu {
    __device__ __forceinline__ static ValueAndSlope of(float x) {
        const float s = sigmoid(x);
        return {x * s, s + x * s * (1.0F - s)};
    }
};

struct Gelu {
    __device__ __forceinline__ static ValueAndSlope of(float x) {
        constexpr float kRoot = 0.70710678F;     // 1 / sqrt(2)
        constexpr float kDensity = 0.39894228F;  // 1 / sqrt(2 pi)
        const float phi = 0.5F * erfcf(-kRoot * x);
        return {x * phi, phi + x * kDensity * expf(-0.5F * x * x)};
    }
};

/// Calls body.template operator()<Function>() with one of these types.
template <typename Body>
void with_activation(Activation activation, Body&& body) {
    switch (activation) {
        case Activation::gelu_tanh:
            return body.template operator()<GeluTanh>();
        case Activation::silu:
            return body.template operator()<Silu>();
        case Activation::gelu:
            return body.template operator()<Gelu>();
    }
}

}  // namespace vocabpipe::kernels::cuda
