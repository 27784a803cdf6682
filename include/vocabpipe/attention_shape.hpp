// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe::kernels {

/// Token rows are grouped by sequence: row n is token n % seq_length of sequence n / seq_length.
/// In a row, heads lie side by side: a heads of q and g of k, of head_size columns, and g of v, of
/// value_size() columns, as has the output, a heads. Query head i reads key/value head i / (a / g)
/// (grouped-query attention). Row n of the queries is query
/// n % query_count() of sequence n / query_count(). If causal, queries are all tokens of a
/// sequence, or its last ones: query i is token first_query() + i. If not, they are tokens of this
/// sequence or of another (cross attention), as many as one likes, and seq_length counts the keys.
struct AttentionShape {
    int64_t sequences = 0;        ///< of a microbatch
    int64_t seq_length = 0;       ///< s, tokens
    int64_t heads = 0;            ///< a, of queries
    int64_t head_size = 0;        ///< d, of queries and keys
    int64_t kv_heads = 0;         ///< g, of keys and values; divides a; g = a: multi-head attention
    int64_t value_head_size = 0;  ///< of values; 0: head_size
    float scale = 0;              ///< of scores q k; 0: 1 / sqrt(d)
    float softcap = 0;            ///< c: scores become c tanh(score / c); 0: none
    int64_t window = 0;           ///< token i sees keys i - window < j <= i; 0: all j <= i
    int64_t queries = 0;  ///< per sequence; if causal, the last of seq_length; 0: seq_length
    bool causal = true;   ///< false: a query sees all keys of its sequence; window must be 0

    /// N, tokens of a microbatch: rows of keys and values.
    [[nodiscard]] int64_t tokens() const { return sequences * seq_length; }
    /// Queries of a sequence.
    [[nodiscard]] int64_t query_count() const { return queries > 0 ? queries : seq_length; }
    /// The token of a sequence that is its first query, if causal.
    [[nodiscard]] int64_t first_query() const { return seq_length - query_count(); }
    /// Queries of a microbatch.
    [[nodiscard]] int64_t query_tokens() const { return sequences * query_count(); }
    /// Columns of a head of v, and of attention's output.
    [[nodiscard]] int64_t value_size() const {
        return value_head_size > 0 ? value_head_size : head_size;
    }
    /// Columns of q.
    [[nodiscard]] int64_t query_columns() const { return heads * head_size; }
    /// Columns of attention's output.
    [[nodiscard]] int64_t output_columns() const { return heads * value_size(); }
    /// Columns of k.
    [[nodiscard]] int64_t key_columns() const { return kv_heads * head_size; }
    /// Columns of v.
    [[nodiscard]] int64_t value_columns() const { return kv_heads * value_size(); }
    /// Columns of k and v together.
    [[nodiscard]] int64_t key_value_columns() const { return key_columns() + value_columns(); }
    /// Columns of q, k and v together.
    [[nodiscard]] int64_t qkv_columns() const { return query_columns() + key_value_columns(); }
};

}  // namespace vocabpipe::kernels
