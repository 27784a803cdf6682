// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/select_context.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace vocabpipe {

/// A sample of a part, and what choosing it first would gain.
struct PartNode {
    int64_t gain = 0;
    uint32_t node = 0;
};

/// Memory that greedy() may use beside the nodes.
struct GreedyBytes {
    uint64_t nodes = 0;  ///< heap, index, result
    uint64_t edges = 0;  ///< entries inside of the part

    /// Of a part of `nodes` that is expected to have `entries` inside.
    [[nodiscard]] static GreedyBytes of(int64_t nodes, int64_t entries);
};

/// Centralised greedy in one part (algorithm 2), with lazy evaluation, for gains only fall: the
/// first `count` samples that it chooses, in their order; of equal gains the smaller id comes
/// first. Neighbours outside of the part do not count. Reads the rows of the part once; `may_be_in`
/// is a fast test that spares looking up most of those outside. If the entries inside take more
/// than `edge_bytes`, rows are read again as they are chosen.
/// `nodes`: ascending; gains are those of the end when it returns.
[[nodiscard]] std::vector<uint32_t> greedy(SelectContext& context, GraphRows& rows,
                                           std::vector<PartNode>& nodes, int64_t count,
                                           uint64_t edge_bytes,
                                           const std::function<bool(uint32_t)>& may_be_in);

}  // namespace vocabpipe
