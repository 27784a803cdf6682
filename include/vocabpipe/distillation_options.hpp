// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// Options of a loss that compares a token's distribution with a list of a teacher's.
struct DistillationOptions {
    /// k, entries of the teacher's list of every token; from 1 to TokenRecords::kMostBest.
    int64_t top_k = 1;
    /// Share of the divergence in the loss, from 0 to 1; the cross-entropy has the rest. Default:
    /// the divergence alone, as the teacher's list says more than the label.
    float kl_share = 1;

    /// Columns of the microbatch that it needs: k log p, then k ids, as in
    /// TokenRecord::top_logprobs.
    [[nodiscard]] constexpr int64_t columns() const { return 2 * top_k; }
    /// Member by member.
    bool operator==(const DistillationOptions&) const = default;
};

}  // namespace vocabpipe
