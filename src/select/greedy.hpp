// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/part_edges.hpp"
#include "src/select/select_context.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Memory for greedy() in a part.
struct GreedyBytes {
    uint64_t nodes = 0;  ///< list, edges' places, heap, index, result
    uint64_t edges = 0;  ///< entries within the part

    /// For a part of `nodes` samples with an expected number of `entries` within it.
    [[nodiscard]] static GreedyBytes of(int64_t nodes, int64_t entries);
};

/// Centralised greedy within one part (algorithm 2): the first `count` samples that it chooses, in
/// their order; in a tie the smaller id comes first. Evaluation is lazy, as gains only fall.
/// `nodes`: ascending; on return their gains are final. `edges` are those of `nodes`.
[[nodiscard]] std::vector<int64_t> greedy(const SelectContext& context,
                                          std::vector<PartNode>& nodes, int64_t count,
                                          const PartEdges& edges);

}  // namespace vocabpipe
