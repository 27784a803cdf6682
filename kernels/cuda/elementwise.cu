// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/map.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

struct Add {
    __device__ static float apply(float a, float b) { return a + b; }
};

struct Copy {
    __device__ static float apply(float value) { return value; }
};

}  // namespace

void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out) {
    require(same_shape(a, out) && same_shape(b, out), "equal shapes of a, b and out");
    with_element_type(a.dtype, [&]<typename A>() {
        with_element_type(b.dtype, [&]<typename B>() {
            with_element_type(out.dtype,
                              [&]<typename Out>() { map<Add, Out, A, B>(ctx, out, a, b); });
        });
    });
}

void convert(Context& ctx, ConstTensor from, Tensor to) {
    require(same_shape(from, to), "equal shapes of from and to");
    with_element_type(from.dtype, [&]<typename From>() {
        with_element_type(to.dtype, [&]<typename To>() { map<Copy, To, From>(ctx, to, from); });
    });
}

}  // namespace vocabpipe::kernels::cuda
