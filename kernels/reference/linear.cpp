// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y) {
    for (int64_t n = 0; n < y.rows; ++n) {
        for (int64_t o = 0; o < y.cols; ++o) {
            double sum = bias ? get(bias, 0, o) : 0.0;
            for (int64_t i = 0; i < x.cols; ++i) sum += get(x, n, i) * get(w, o, i);
            set(y, n, o, sum);
        }
    }
    ctx.poll();
}

void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, Tensor dx) {
    for (int64_t n = 0; n < dx.rows; ++n) {
        for (int64_t i = 0; i < dx.cols; ++i) {
            double sum = 0.0;
            for (int64_t o = 0; o < dy.cols; ++o) sum += get(dy, n, o) * get(w, o, i);
            set(dx, n, i, sum);
        }
    }
    ctx.poll();
}

void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw, Tensor dbias,
                            bool accumulate) {
    for (int64_t o = 0; o < dw.rows; ++o) {
        for (int64_t i = 0; i < dw.cols; ++i) {
            double sum = start(dw, o, i, accumulate);
            for (int64_t n = 0; n < dy.rows; ++n) sum += get(dy, n, o) * get(x, n, i);
            set(dw, o, i, sum);
        }
        if (!dbias) continue;
        double sum = start(dbias, 0, o, accumulate);
        for (int64_t n = 0; n < dy.rows; ++n) sum += get(dy, n, o);
        set(dbias, 0, o, sum);
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
