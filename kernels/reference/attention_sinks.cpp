// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

void attention_sinks_forward(Context& ctx, ConstTensor sinks, const AttentionShape& shape,
                             Tensor out, Tensor log_sum_exp) {
    for (int64_t n = 0; n < out.rows; ++n) {
        for (int64_t head = 0; head < shape.heads; ++head) {
            const double sink = get(sinks, 0, head), before = get(log_sum_exp, n, head);
            const double all =
                std::max(sink, before) + std::log1p(std::exp(-std::abs(sink - before)));
            set(log_sum_exp, n, head, all);
            for (int64_t i = 0; i < shape.value_size(); ++i) {
                const int64_t col = head * shape.value_size() + i;
                set(out, n, col, get(out, n, col) * std::exp(before - all));
            }
        }
    }
    ctx.poll();
}

void attention_sinks_backward(Context& ctx, ConstTensor sinks, ConstTensor dout, ConstTensor out,
                              ConstTensor log_sum_exp, const AttentionShape& shape,
                              Tensor dscores) {
    for (int64_t n = 0; n < out.rows; ++n) {
        for (int64_t head = 0; head < shape.heads; ++head) {
            double product = 0;
            for (int64_t i = 0; i < shape.value_size(); ++i) {
                const int64_t col = head * shape.value_size() + i;
                product += get(dout, n, col) * get(out, n, col);
            }
            set(dscores, n, head,
                -std::exp(get(sinks, 0, head) - get(log_sum_exp, n, head)) * product);
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
