// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/select_context.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace vocabpipe {

/// A sample of a part, and the gain of choosing it first.
struct PartNode {
    int64_t gain = 0;
    int64_t node = 0;
};

/// Memory that greedy() may use besides the nodes.
struct GreedyBytes {
    uint64_t nodes = 0;  ///< heap, index, result
    uint64_t edges = 0;  ///< entries within the part

    /// For a part of `nodes` samples with an expected number of `entries` within it.
    [[nodiscard]] static GreedyBytes of(int64_t nodes, int64_t entries);
};

/// Centralised greedy within one part (algorithm 2): the first `count` samples that it chooses, in
/// their order; in a tie the smaller id comes first. Evaluation is lazy, as gains only fall.
/// Neighbours outside the part do not count. Reads the rows of the part once; `may_be_in` is a fast
/// test that avoids looking up most neighbours outside. If the entries within the part take more
/// than `edge_bytes`, rows are read again as samples are chosen. `nodes`: ascending; on return
/// their gains are final.
[[nodiscard]] std::vector<int64_t> greedy(SelectContext& context, GraphRows& rows,
                                          std::vector<PartNode>& nodes, int64_t count,
                                          uint64_t edge_bytes,
                                          const std::function<bool(int64_t)>& may_be_in);

/// Most samples of a part: its edges name them by their place in it.
inline constexpr int64_t kMostPartNodes = int64_t{1} << 32;

}  // namespace vocabpipe
