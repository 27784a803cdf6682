// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/objective.hpp"
#include "src/select/packed_id.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace vocabpipe {

/// What is certain about a choice of k samples, whoever made it.
struct Certificate {
    /// No k samples have a larger f. None: the bound is beyond 64 bits.
    std::optional<int64_t> bound;
    /// The chosen samples without which f of the others would be larger, each by itself.
    int64_t lowering = 0;
};

/// Bounds f of all sets of k samples from above, beginning with the samples that are selected or
/// open in `state`, of which there must be k. Each step reads the rows of samples that were among
/// the best of some step before, and sends at most one message for each of their entries. More
/// steps never give a larger bound. `steps`: at least 1; fewer are made if 64 bits do not hold the
/// sums of so many. `longest_row`: entries of the longest row of all. Afterwards the upper bounds
/// of `state` are no longer those of the selection. Collective.
[[nodiscard]] Certificate certify(SelectContext& context, SelectionState& state, int64_t k,
                                  const ReadUtilities& utilities, int64_t steps,
                                  int64_t longest_row);

/// Most steps of certify().
inline constexpr int64_t kMostCertificateSteps = 255;

/// Bytes that certify() holds besides the state of `nodes` samples, or of one block.
[[nodiscard]] inline uint64_t certificate_bytes(const StateBlocks& blocks, int64_t nodes) {
    return static_cast<uint64_t>(std::min(blocks.length(nodes, nodes), nodes));
}

/// A message of certify().
struct EdgeOfBest {
    PackedId node;      ///< receives the message
    uint8_t times = 0;  ///< steps in which the other end was among the best
    int32_t similarity = 0;
};

}  // namespace vocabpipe
