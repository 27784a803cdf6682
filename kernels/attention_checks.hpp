// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of attention's and the rotary operators that all devices share; each
// device checks its own workspaces. They throw UsageError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "kernels/check.hpp"
#include "vocabpipe/attention_shape.hpp"

namespace vocabpipe::kernels {

/// What every kind of attention requires of a shape.
inline void require_heads(const AttentionShape& shape) {
    require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "kv_heads that divide heads");
    require(shape.scale >= 0 && shape.softcap >= 0 && shape.window >= 0,
            "scale, softcap and window of 0 or more");
    require(shape.value_head_size >= 0, "a value_head_size of 0 or more");
}

/// What attention leaves of its queries.
inline void require_attended(const AttentionShape& shape, ConstTensor out,
                             ConstTensor log_sum_exp) {
    require(has_shape(out, shape.query_tokens(), shape.output_columns()),
            "out of shape (query_tokens, output_columns)");
    require(has_shape(log_sum_exp, shape.query_tokens(), shape.heads) &&
                log_sum_exp.dtype == DType::fp32,
            "log_sum_exp of shape (query_tokens, heads) fp32");
}

inline void require_attention(ConstTensor q, ConstTensor kv, const AttentionShape& shape,
                              std::span<const int32_t> first_visible, ConstTensor out,
                              ConstTensor log_sum_exp) {
    require_heads(shape);
    require(shape.queries >= 0, "queries of 0 or more");
    if (shape.causal) {
        require(shape.queries <= shape.seq_length, "queries from 0 to seq_length");
    } else {
        require(shape.window == 0, "a window of 0 where attention is not causal");
        require(first_visible.empty(), "no first_visible where attention is not causal");
        require(shape.seq_length > 0 || shape.query_tokens() == 0, "a key for every query");
    }
    require(has_shape(q, shape.query_tokens(), shape.query_columns()),
            "q of shape (query_tokens, query_columns)");
    require(has_shape(kv, shape.tokens(), shape.key_value_columns()),
            "kv of shape (N, key_value_columns)");
    require_attended(shape, out, log_sum_exp);
    require(q.dtype == kv.dtype && q.dtype == out.dtype, "one type for q, kv and out");
    require(first_visible.empty() || std::ssize(first_visible) == shape.query_tokens(),
            "first_visible of all queries, or of none");
}

/// In addition to require_attention(), where the host can read `first_visible`: a query sees
/// itself.
inline void require_visible_tokens(const AttentionShape& shape,
                                   std::span<const int32_t> first_visible) {
    for (size_t n = 0; n < first_visible.size(); ++n) {
        const int64_t query = shape.first_query() + static_cast<int64_t>(n) % shape.query_count();
        require(first_visible[n] >= 0 && first_visible[n] <= query,
                "first_visible from 0 to the query's own token in its sequence");
    }
}

/// In addition to require_attention().
inline void require_attention_gradients(ConstTensor dout, ConstTensor q, ConstTensor kv,
                                        ConstTensor out, ConstTensor dq, ConstTensor dkv) {
    require(same_shape(dout, out) && same_shape(dq, q) && same_shape(dkv, kv),
            "gradients shaped as their tensors");
    require(dout.dtype == q.dtype && dq.dtype == q.dtype && dkv.dtype == q.dtype,
            "one type for all gradients");
}

inline void require_sinks(ConstTensor sinks, const AttentionShape& shape, ConstTensor out) {
    require(has_shape(sinks, 1, shape.heads) && sinks.dtype == out.dtype,
            "sinks of shape (1, heads) of the output's type");
}

inline void require_attention_sinks(ConstTensor sinks, const AttentionShape& shape, ConstTensor out,
                                    ConstTensor log_sum_exp) {
    require_sinks(sinks, shape, out);
    require_attended(shape, out, log_sum_exp);
}

/// In addition to require_attention_sinks().
inline void require_sink_gradients(ConstTensor dout, ConstTensor out, ConstTensor dscores,
                                   ConstTensor log_sum_exp) {
    require(same_shape(dout, out) && dout.dtype == out.dtype, "dout of out's shape and type");
    require(same_shape(dscores, log_sum_exp) && dscores.dtype == DType::fp32,
            "dscores of shape (query_tokens, heads) fp32");
}

inline void require_cached_attention(ConstTensor q, ConstTensor kv, ConstTensor sinks,
                                     const AttentionShape& shape, ConstTensor out) {
    require_heads(shape);
    require(shape.sequences == 1, "one sequence");
    require(shape.causal, "causal attention");
    require(has_shape(kv, shape.seq_length, shape.key_value_columns()),
            "kv of shape (seq_length, key_value_columns)");
    require(q.cols == shape.query_columns() && q.rows <= shape.seq_length,
            "q of shape (seq_length or less, query_columns)");
    require(has_shape(out, q.rows, shape.output_columns()), "out of shape (n, output_columns)");
    require(q.dtype == kv.dtype && q.dtype == out.dtype, "one type for q, kv and out");
    if (sinks) require_sinks(sinks, shape, out);
}

inline void require_rotary(ConstTensor table, const AttentionShape& shape, ConstTensor qkv) {
    require(has_shape(qkv, shape.tokens(), shape.qkv_columns()), "qkv of shape (N, qkv_columns)");
    require(table.rows >= shape.seq_length && table.dtype == DType::fp32,
            "an fp32 table of seq_length rows or more");
    require(table.cols % 2 == 0 && table.cols <= shape.head_size,
            "a table of an even number of columns, at most head_size");
}

}  // namespace vocabpipe::kernels
