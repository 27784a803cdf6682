// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out) {
    require(same_shape(a, out) && same_shape(b, out), "equal shapes of a, b and out");
    with_type(a.dtype, [&]<typename A>() {
        with_type(b.dtype, [&]<typename B>() {
            with_type(out.dtype, [&]<typename Out>() {
                parallel_ranges(ctx, out.rows, out.size(), [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) {
                        const A* x = a.as<A>() + row * a.stride;
                        const B* y = b.as<B>() + row * b.stride;
                        Out* z = out.as<Out>() + row * out.stride;
#pragma omp simd
                        for (int64_t i = 0; i < out.cols; ++i) {
                            z[i] = from_float<Out>(to_float(x[i]) + to_float(y[i]));
                        }
                    }
                });
            });
        });
    });
}

void convert(Context& ctx, ConstTensor from, Tensor to) {
    require(same_shape(from, to), "equal shapes of from and to");
    with_type(from.dtype, [&]<typename From>() {
        with_type(to.dtype, [&]<typename To>() {
            parallel_ranges(ctx, to.rows, to.size(), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    const From* x = from.as<From>() + row * from.stride;
                    To* y = to.as<To>() + row * to.stride;
#pragma omp simd
                    for (int64_t i = 0; i < to.cols; ++i) y[i] = from_float<To>(to_float(x[i]));
                }
            });
        });
    });
}

void scale(Context& ctx, ConstTensor x, float factor, Tensor y) {
    require(same_shape(x, y) && x.dtype == y.dtype, "equal shapes and types of x and y");
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, y.rows, y.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* in = x.as<T>() + row * x.stride;
                T* out = y.as<T>() + row * y.stride;
#pragma omp simd
                for (int64_t i = 0; i < y.cols; ++i) {
                    out[i] = from_float<T>(factor * to_float(in[i]));
                }
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host
