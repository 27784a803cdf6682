// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out) {
    for (int64_t n = 0; n < out.rows; ++n) {
        for (int64_t i = 0; i < out.cols; ++i) set(out, n, i, get(a, n, i) + get(b, n, i));
    }
    ctx.poll();
}

void convert(Context& ctx, ConstTensor from, Tensor to) {
    for (int64_t n = 0; n < to.rows; ++n) {
        for (int64_t i = 0; i < to.cols; ++i) set(to, n, i, get(from, n, i));
    }
    ctx.poll();
}

void scale(Context& ctx, ConstTensor x, float factor, Tensor y) {
    for (int64_t n = 0; n < y.rows; ++n) {
        for (int64_t i = 0; i < y.cols; ++i) {
            set(y, n, i, static_cast<double>(factor) * get(x, n, i));
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
