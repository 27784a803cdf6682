// SPDX-License-Identifier: Apache-2.0
// How attention is cut into pieces: a pure function of its shape.
#pragma once

#include <cstdint>

#include "kernels/attention_shape.hpp"
#include "kernels/cuda/attention.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// A pair is one head of one sequence, number sequence * heads + head. Products run over a group:
/// consecutive heads of one sequence. Groups are the same whatever the workspace, because
/// cuBLASLt's algorithm, and with it the bits, may depend on their size.
struct AttentionPlan {
    int64_t query_rows = 0;    ///< queries whose scores are held at a time
    int64_t score_stride = 0;  ///< fp32 elements between rows of scores
    int64_t group_heads = 0;   ///< of a sequence; its last group may be smaller
    int64_t groups = 0;        ///< of all sequences
    // Bytes of one pair's scratch, and where it holds what: scores and p, their gradients, fp32
    // sums of dk and dv.
    int64_t gradients_at = 0, dk_at = 0, dv_at = 0, pair_bytes = 0;

    explicit AttentionPlan(AttentionShape shape);
    [[nodiscard]] int64_t group_bytes() const { return group_heads * pair_bytes; }
    /// Groups whose scores may be held at a time in a workspace.
    [[nodiscard]] int64_t groups_in(int64_t workspace_bytes) const;
    [[nodiscard]] int64_t workspace_bytes() const {
        return groups_in(kAttentionScratchBytes) * group_bytes();
    }
};

}  // namespace vocabpipe::kernels::cuda
