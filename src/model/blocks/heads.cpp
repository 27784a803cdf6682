// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/heads.hpp"

namespace vocabpipe {

namespace {

/// The number of keys that a query sees: mean over the queries of a sequence.
double mean_keys(const kernels::AttentionShape& shape, int64_t seq_length) {
    const auto s = static_cast<double>(seq_length);
    if (!shape.causal) return s;
    const auto w = static_cast<double>(shape.window);
    return w > 0 && w < s ? w - w * w / (2 * s) : s / 2;
}

}  // namespace

void keep_keys_values(const StagePass& pass, const kernels::AttentionShape& shape,
                      ConstTensor qkv) {
    if (!pass.cached) return;
    pass.op().convert(pass.ctx, keys_values_of(qkv, shape),
                      pass.cached.keys_values.row_range(pass.cached.count, shape.seq_length));
}

void attend_to(const StagePass& pass, ConstTensor q, ConstTensor kv,
               const kernels::AttentionShape& shape, std::span<const int32_t> first_visible,
               const HeadSinks& sinks, Tensor out, Tensor log_sum_exp, Bytes workspace) {
    const kernels::Operators& op = pass.op();
    op.causal_attention_forward(pass.ctx, q, kv, shape, first_visible, out, log_sum_exp, workspace);
    if (sinks) op.attention_sinks_forward(pass.ctx, sinks.scores, shape, out, log_sum_exp);
}

void attend_to_backward(const StagePass& pass, ConstTensor dout, ConstTensor q, ConstTensor kv,
                        ConstTensor out, ConstTensor log_sum_exp,
                        const kernels::AttentionShape& shape,
                        std::span<const int32_t> first_visible, const HeadSinks& sinks, Tensor dq,
                        Tensor dkv, Bytes workspace) {
    const kernels::Operators& op = pass.op();
    op.causal_attention_backward(pass.ctx, dout, q, kv, out, log_sum_exp, shape, first_visible, dq,
                                 dkv, workspace);
    if (sinks.gradients) {
        op.attention_sinks_backward(pass.ctx, sinks.scores, dout, out, log_sum_exp, shape,
                                    sinks.gradients);
    }
}

void attend(const StagePass& pass, const kernels::AttentionShape& shape, ConstTensor qkv,
            const HeadSinks& sinks, Tensor heads, Statistics log_sum_exp) {
    const ConstTensor q = queries_of(qkv, shape);
    if (pass.cached.count == 0) {
        return attend_to(pass, q, keys_values_of(qkv, shape), shape, pass.microbatch.first_visible,
                         sinks, heads, log_sum_exp, pass.scratch.workspace);
    }
    kernels::AttentionShape all = shape;
    all.seq_length = pass.cached.count + shape.seq_length;
    pass.op().cached_attention_forward(pass.ctx, q,
                                       pass.cached.keys_values.row_range(0, all.seq_length),
                                       sinks.scores, all, heads);
}

void attend_backward(const StagePass& pass, const kernels::AttentionShape& shape,
                     ConstTensor dheads, ConstTensor qkv, const HeadSinks& sinks, ConstTensor heads,
                     ConstTensor log_sum_exp, Tensor dqkv) {
    attend_to_backward(pass, dheads, queries_of(qkv, shape), keys_values_of(qkv, shape), heads,
                       log_sum_exp, shape, pass.microbatch.first_visible, sinks,
                       queries_of(dqkv, shape), keys_values_of(dqkv, shape),
                       pass.scratch.workspace);
}

double heads_flops(const kernels::AttentionShape& shape, int64_t seq_length) {
    return 2 * static_cast<double>(shape.query_columns() + shape.output_columns()) *
           mean_keys(shape, seq_length);
}

}  // namespace vocabpipe
