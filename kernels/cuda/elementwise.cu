// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

struct Add {
    __device__ float operator()(float a, float b) const { return a + b; }
};

struct Copy {
    __device__ float operator()(float value) const { return value; }
};

struct Scale {
    float factor;
    __device__ float operator()(float value) const { return factor * value; }
};

}  // namespace

/// A stride of 0 repeats one row of a or b.
void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out) {
    require(same_shape(a, out) && same_shape(b, out), "equal shapes of a, b and out");
    with_element_type(a.dtype, [&]<typename A>() {
        with_element_type(b.dtype, [&]<typename B>() {
            with_element_type(out.dtype,
                              [&]<typename Out>() { map<Out, A, B>(ctx, Add{}, out, a, b); });
        });
    });
}

void convert(Context& ctx, ConstTensor from, Tensor to) {
    require(same_shape(from, to), "equal shapes of from and to");
    with_element_type(from.dtype, [&]<typename From>() {
        with_element_type(to.dtype, [&]<typename To>() { map<To, From>(ctx, Copy{}, to, from); });
    });
}

void scale(Context& ctx, ConstTensor x, float factor, Tensor y) {
    require(same_shape(x, y) && x.dtype == y.dtype, "equal shapes and types of x and y");
    with_element_type(x.dtype, [&]<typename T>() { map<T, T>(ctx, Scale{factor}, y, x); });
}

}  // namespace vocabpipe::kernels::cuda
