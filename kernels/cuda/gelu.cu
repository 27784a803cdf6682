// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

struct Gelu {
    __device__ float operator()(float x) const { return gelu(x).value; }
};

struct GeluGradient {
    __device__ float operator()(float dy, float x) const { return dy * gelu(x).slope; }
};

}  // namespace

void gelu_forward(Context& ctx, ConstTensor x, Tensor y) {
    require(same_shape(x, y), "equal shapes of x and y");
    with_element_type(x.dtype, [&]<typename X>() {
        with_element_type(y.dtype, [&]<typename Y>() { map<Y, X>(ctx, Gelu{}, y, x); });
    });
}

void gelu_backward(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dx) {
    require(same_shape(x, dx) && same_shape(dy, dx), "equal shapes of dy, x and dx");
    require(dy.dtype == x.dtype, "dy of x's type");
    with_element_type(x.dtype, [&]<typename X>() {
        with_element_type(dx.dtype,
                          [&]<typename Y>() { map<Y, X, X>(ctx, GeluGradient{}, dx, dy, x); });
    });
}

}  // namespace vocabpipe::kernels::cuda
