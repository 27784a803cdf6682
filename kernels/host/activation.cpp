// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include "kernels/check.hpp"
#include "kernels/host/activation.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void activation_forward(Context& ctx, Activation activation, ConstTensor x, Tensor y) {
    require(same_shape(x, y), "equal shapes of x and y");
    with_activation_and_type(activation, x.dtype, [&]<Activation kActivation, typename X>() {
        with_type(y.dtype, [&]<typename Y>() {
            parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    const X* in = x.as<X>() + row * x.stride;
                    Y* out = y.as<Y>() + row * y.stride;
#pragma omp simd
                    for (int64_t i = 0; i < x.cols; ++i) {
                        out[i] = from_float<Y>(activate<kActivation>(to_float(in[i])));
                    }
                }
            });
        });
    });
}

void activation_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor x,
                         Tensor dx) {
    require(same_shape(x, dx) && same_shape(dy, dx), "equal shapes of dy, x and dx");
    require(dy.dtype == x.dtype, "dy of x's type");
    with_activation_and_type(activation, x.dtype, [&]<Activation kActivation, typename X>() {
        with_type(dx.dtype, [&]<typename Y>() {
            parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    const X* in = x.as<X>() + row * x.stride;
                    const X* gradient = dy.as<X>() + row * dy.stride;
                    Y* out = dx.as<Y>() + row * dx.stride;
#pragma omp simd
                    for (int64_t i = 0; i < x.cols; ++i) {
                        const float slope = activate_with_slope<kActivation>(to_float(in[i])).slope;
                        out[i] = from_float<Y>(to_float(gradient[i]) * slope);
                    }
                }
            });
        });
    });
}

}  // namespace vocabpipe::kernels::host
