// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A graph for running nodes in dependency order: successors, and numbers of predecessors.
struct Successors {
    std::vector<uint32_t> missing;  ///< [node] number of predecessors
    std::vector<uint32_t>
        first;  ///< [node] where its successors begin in `after`; nodes + 1 entries
    std::vector<uint32_t> after;  ///< successors, node by node, in the order of the edges

    Successors() = default;
    /// `edges`: (before, after) pairs of nodes below `nodes`.
    template <typename Edges>
    Successors(size_t nodes, const Edges& edges)
        : missing(nodes, 0), first(nodes + 1, 0), after(edges.size()) {
        for (const auto& [before, next] : edges) {
            ++missing[next];
            ++first[before + 1];
        }
        for (size_t i = 0; i < nodes; ++i) first[i + 1] += first[i];
        std::vector<uint32_t> fill(first.begin(), first.end() - 1);
        for (const auto& [before, next] : edges) after[fill[before]++] = next;
    }

    [[nodiscard]] std::span<const uint32_t> of(uint32_t node) const {
        return {after.data() + first[node], first[node + 1] - first[node]};
    }
};

}  // namespace vocabpipe
