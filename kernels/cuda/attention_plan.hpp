// SPDX-License-Identifier: Apache-2.0
// How attention is cut into pieces: a pure function of its shape.
#pragma once

#include <cstdint>

#include "kernels/attention_shape.hpp"
#include "kernels/cuda/attention.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// Queries [begin, begin + rows) of every sequence, and the keys [first_key, begin + rows) that any
/// of them may see. Columns of scores count from first_key.
struct QueryBlock {
    int64_t begin, rows, first_key;
    [[nodiscard]] int64_t keys() const { return begin + rows - first_key; }
};

/// A pair is one head of keys and values of one sequence, number sequence * kv_heads + head. The
/// query heads that read it take turns in its scratch. Products run over a group: consecutive pairs
/// of one sequence. Groups are the same whatever the workspace, because cuBLASLt's algorithm, and
/// with it the bits, may depend on their size.
class AttentionPlan {
public:
    explicit AttentionPlan(AttentionShape shape);

    int64_t query_rows = 0;    ///< queries whose scores are held at a time
    int64_t score_stride = 0;  ///< fp32 elements between rows of scores
    int64_t group_heads = 0;   ///< kv heads of a sequence; its last group may be smaller
    int64_t groups = 0;        ///< of all sequences
    // Bytes of one pair's scratch, and where it holds what: scores and p of one query head, their
    // gradients, fp32 sums of dk and dv.
    int64_t gradients_at = 0, dk_at = 0, dv_at = 0, pair_bytes = 0;

    /// The block of queries that starts at `begin`, a multiple of query_rows.
    [[nodiscard]] QueryBlock block(int64_t begin) const;
    [[nodiscard]] int64_t last_block() const { return (seq_length_ - 1) / query_rows * query_rows; }
    /// Whether some block leaves out keys before it.
    [[nodiscard]] bool skips_keys() const { return block(last_block()).first_key > 0; }

    [[nodiscard]] int64_t group_bytes() const { return group_heads * pair_bytes; }
    /// Groups whose scores may be held at a time in a workspace.
    [[nodiscard]] int64_t groups_in(int64_t workspace_bytes) const;
    [[nodiscard]] int64_t workspace_bytes() const {
        return groups_in(kAttentionScratchBytes) * group_bytes();
    }

private:
    int64_t seq_length_ = 0, window_ = 0;
};

}  // namespace vocabpipe::kernels::cuda
