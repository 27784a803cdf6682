// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

template <typename View>
View head_of(View packed, int64_t head, const AttentionShape& shape) {
    return packed.column_range(head * shape.head_size, shape.head_size);
}

/// Calls body(head, gamma) for the heads of q, then of k.
template <typename Gamma, typename Body>
void for_each_head(const AttentionShape& shape, Gamma gamma_q, Gamma gamma_k, Body&& body) {
    for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        body(head, head < shape.heads ? gamma_q : gamma_k);
    }
}

void copy_v(ConstTensor from, const AttentionShape& shape, Tensor to) {
    for (int64_t n = 0; n < from.rows; ++n) {
        for (int64_t i = shape.query_columns() + shape.key_columns(); i < from.cols; ++i) {
            set(to, n, i, get(from, n, i));
        }
    }
}

}  // namespace

void head_norm_forward(Context& ctx, ConstTensor qkv, ConstTensor gamma_q, ConstTensor gamma_k,
                       const RmsNormOptions& options, const AttentionShape& shape, Tensor out,
                       Tensor statistics) {
    for_each_head(shape, gamma_q, gamma_k, [&](int64_t head, ConstTensor gamma) {
        rms_norm_forward(ctx, head_of(qkv, head, shape), gamma, options, {},
                         head_of(out, head, shape), statistics.column_range(head, 1));
    });
    copy_v(qkv, shape, out);
}

void head_norm_backward_input(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor gamma_q,
                              ConstTensor gamma_k, const RmsNormOptions& options,
                              ConstTensor statistics, const AttentionShape& shape, Tensor dqkv) {
    for_each_head(shape, gamma_q, gamma_k, [&](int64_t head, ConstTensor gamma) {
        rms_norm_backward_input(ctx, head_of(dout, head, shape), head_of(qkv, head, shape), gamma,
                                options, statistics.column_range(head, 1), {},
                                head_of(dqkv, head, shape));
    });
    copy_v(dout, shape, dqkv);
}

void head_norm_backward_weight(Context& ctx, ConstTensor dout, ConstTensor qkv,
                               ConstTensor statistics, const AttentionShape& shape, Tensor dgamma_q,
                               Tensor dgamma_k, bool accumulate) {
    for_each_head(shape, dgamma_q, dgamma_k, [&](int64_t head, Tensor dgamma) {
        const bool first = head == 0 || head == shape.heads;
        rms_norm_backward_weight(ctx, head_of(dout, head, shape), head_of(qkv, head, shape),
                                 statistics.column_range(head, 1), dgamma, accumulate || !first);
    });
}

}  // namespace vocabpipe::kernels::reference
