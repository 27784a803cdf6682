// SPDX-License-Identifier: Apache-2.0
// Heads of attention: what lies where in rows of q, k and v, attention of queries to keys, with
// sinks where the model has them, and attention of a rank that has whole sequences.
#pragma once

#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "vocabpipe/attention_shape.hpp"

#include <cstdint>

namespace vocabpipe {

[[nodiscard]] inline kernels::AttentionShape with_sequences(kernels::AttentionShape shape,
                                                            int64_t sequences, int64_t seq_length) {
    shape.sequences = sequences;
    shape.seq_length = seq_length;
    return shape;
}
/// `shape` with the sequences of the pass.
[[nodiscard]] inline kernels::AttentionShape shape_in_pass(const kernels::AttentionShape& shape,
                                                           const StagePass& pass) {
    return with_sequences(shape, pass.microbatch.sequences, pass.microbatch.seq_length);
}

/// Columns of q, of k, of v, and of k and v, in rows of all three.
template <class AnyTensor>
[[nodiscard]] AnyTensor queries_of(AnyTensor qkv, const kernels::AttentionShape& shape) {
    return qkv.column_range(0, shape.query_columns());
}
template <class AnyTensor>
[[nodiscard]] AnyTensor keys_of(AnyTensor qkv, const kernels::AttentionShape& shape) {
    return qkv.column_range(shape.query_columns(), shape.key_columns());
}
template <class AnyTensor>
[[nodiscard]] AnyTensor values_of(AnyTensor qkv, const kernels::AttentionShape& shape) {
    return qkv.column_range(shape.query_columns() + shape.key_columns(), shape.value_columns());
}
template <class AnyTensor>
[[nodiscard]] AnyTensor keys_values_of(AnyTensor qkv, const kernels::AttentionShape& shape) {
    return qkv.column_range(shape.query_columns(), shape.key_value_columns());
}

/// One more score per head in every softmax (attention_sinks_forward() in operators.hpp). Empty:
/// none.
struct HeadSinks {
    ConstTensor scores;  ///< (1, heads)
    /// (N, heads) fp32: of the scores in every query. The backward makes it; empty: not wanted.
    Tensor gradients = {};

    [[nodiscard]] explicit operator bool() const { return bool{scores}; }
};

/// Attention of all queries of `shape` to all keys, as causal_attention_forward().
void attend_to(const StagePass& pass, ConstTensor q, ConstTensor kv,
               const kernels::AttentionShape& shape, std::span<const int32_t> first_visible,
               const HeadSinks& sinks, Tensor out, Tensor log_sum_exp, Bytes workspace);
/// Its gradients, as causal_attention_backward(), and those of the sinks.
void attend_to_backward(const StagePass& pass, ConstTensor dout, ConstTensor q, ConstTensor kv,
                        ConstTensor out, ConstTensor log_sum_exp,
                        const kernels::AttentionShape& shape,
                        std::span<const int32_t> first_visible, const HeadSinks& sinks, Tensor dq,
                        Tensor dkv, Bytes workspace);

/// In generation: adds keys and values of the pass to those that are kept.
void keep_keys_values(const StagePass& pass, const kernels::AttentionShape& shape, ConstTensor qkv);
/// heads (N, output_columns) from qkv (N, qkv_columns); log_sum_exp (N, heads). In generation
/// queries see kept keys, too.
void attend(const StagePass& pass, const kernels::AttentionShape& shape, ConstTensor qkv,
            const HeadSinks& sinks, Tensor heads, Statistics log_sum_exp);
/// dqkv, the gradient of qkv, and that of the sinks, from dheads.
void attend_backward(const StagePass& pass, const kernels::AttentionShape& shape,
                     ConstTensor dheads, ConstTensor qkv, const HeadSinks& sinks, ConstTensor heads,
                     ConstTensor log_sum_exp, Tensor dqkv);

/// Forward FLOPs of the heads per query, in sequences of this many keys.
[[nodiscard]] double heads_flops(const kernels::AttentionShape& shape, int64_t seq_length);

}  // namespace vocabpipe
