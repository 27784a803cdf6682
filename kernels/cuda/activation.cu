// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

template <typename Function>
struct Value {
    __device__ float operator()(float x) const { return Function::of(x).value; }
};

template <typename Function>
struct Gradient {
    __device__ float operator()(float dy, float x) const { return dy * Function::of(x).slope; }
};

}  // namespace

void activation_forward(Context& ctx, Activation activation, ConstTensor x, Tensor y) {
    require(same_shape(x, y), "equal shapes of x and y");
    with_element_type(x.dtype, [&]<typename X>() {
        with_element_type(y.dtype, [&]<typename Y>() {
            with_activation(activation,
                            [&]<typename Function>() { map<Y, X>(ctx, Value<Function>{}, y, x); });
        });
    });
}

void activation_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor x,
                         Tensor dx) {
    require(same_shape(x, dx) && same_shape(dy, dx), "equal shapes of dy, x and dx");
    require(dy.dtype == x.dtype, "dy of x's type");
    with_element_type(x.dtype, [&]<typename X>() {
        with_element_type(dx.dtype, [&]<typename Y>() {
            with_activation(activation, [&]<typename Function>() {
                map<Y, X, X>(ctx, Gradient<Function>{}, dx, dy, x);
            });
        });
    });
}

}  // namespace vocabpipe::kernels::cuda
