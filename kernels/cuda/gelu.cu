// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/gelu.hpp"
#include "kernels/cuda/map.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

// (1 + tanh(u)) / 2 = sigmoid(2u), without the cancellation of 1 + tanh(u) for negative u.
constexpr float kTwiceSlope = 1.5957691216057308F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

__device__ __forceinline__ float sigmoid_2u(float x) {
    return 1.0F / (1.0F + expf(-kTwiceSlope * (x + kCubic * x * x * x)));
}

struct Gelu {
    __device__ static float apply(float x) { return x * sigmoid_2u(x); }
};

struct GeluGradient {
    __device__ static float apply(float dy, float x) {
        const float s = sigmoid_2u(x);
        const float slope = kTwiceSlope * (1.0F + 3.0F * kCubic * x * x);
        return dy * (s + x * s * (1.0F - s) * slope);
    }
};

}  // namespace

void gelu_forward(Context& ctx, ConstTensor x, Tensor y) {
    require(same_shape(x, y), "equal shapes of x and y");
    with_element_type(x.dtype, [&]<typename X>() {
        with_element_type(y.dtype, [&]<typename Y>() { map<Gelu, Y, X>(ctx, y, x); });
    });
}

void gelu_backward(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dx) {
    require(same_shape(x, dx) && same_shape(dy, dx), "equal shapes of dy, x and dx");
    require(dy.dtype == x.dtype, "dy of x's type");
    with_element_type(x.dtype, [&]<typename X>() {
        with_element_type(dx.dtype,
                          [&]<typename Y>() { map<GeluGradient, Y, X, X>(ctx, dx, dy, x); });
    });
}

}  // namespace vocabpipe::kernels::cuda
