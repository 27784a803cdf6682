// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/gelu.hpp"

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

// (1 + tanh(u)) / 2 = sigmoid(2u), without the cancellation of 1 + tanh(u) for negative u.
constexpr float kTwiceSlope = 1.5957691216057308F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

inline float sigmoid_2u(float x) {
    return fast_sigmoid(kTwiceSlope * (x + kCubic * x * x * x));
}

}  // namespace

void gelu_forward(Context& ctx, ConstTensor x, Tensor y) {
    require(same_shape(x, y), "equal shapes of x and y");
    with_type(x.dtype, [&]<typename X>() {
        with_type(y.dtype, [&]<typename Y>() {
            parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    const X* in = x.as<X>() + row * x.stride;
                    Y* out = y.as<Y>() + row * y.stride;
#pragma omp simd
                    for (int64_t i = 0; i < x.cols; ++i) {
                        const float value = to_float(in[i]);
                        out[i] = from_float<Y>(value * sigmoid_2u(value));
                    }
                }
            });
        });
    });
}

void gelu_backward(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dx) {
    require(same_shape(x, dx) && same_shape(dy, dx), "equal shapes of dy, x and dx");
    require(dy.dtype == x.dtype, "dy of x's type");
    with_type(x.dtype, [&]<typename X>() {
        with_type(dx.dtype, [&]<typename Y>() {
            parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    const X* in = x.as<X>() + row * x.stride;
                    const X* gradient = dy.as<X>() + row * dy.stride;
                    Y* out = dx.as<Y>() + row * dx.stride;
#pragma omp simd
                    for (int64_t i = 0; i < x.cols; ++i) {
                        const float v = to_float(in[i]);
                        const float s = sigmoid_2u(v);
                        const float slope = kTwiceSlope * (1.0F + 3.0F * kCubic * v * v);
                        const float derivative = s + v * s * (1.0F - s) * slope;
                        out[i] = from_float<Y>(to_float(gradient[i]) * derivative);
                    }
                }
            });
        });
    });
}

}  // namespace vocabpipe::kernels::host
