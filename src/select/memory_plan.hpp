// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/bounding.hpp"
#include "src/select/select_context.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// What the memory of a selection follows from.
struct GraphSizes {
    int64_t nodes = 0, entries = 0;
    int64_t rank_nodes = 0, rank_entries = 0;  ///< the most of a rank
    int64_t own_entries = 0;                   ///< of this rank
    int64_t longest_row = 0;

    /// Reads where rows begin. Collective; InputFileError on every rank.
    [[nodiscard]] static GraphSizes of(const SelectContext& context);
    /// What they are at least, by the numbers of nodes and entries alone.
    [[nodiscard]] static GraphSizes least(int64_t nodes, int64_t entries, int ranks);
    /// About what they would be on another number of ranks.
    [[nodiscard]] GraphSizes on(int ranks) const;
};

/// Bytes per rank, by what they are for, before the work begins.
struct MemoryPlan {
    using Term = std::pair<std::string, uint64_t>;
    std::vector<Term> always;            ///< the state, and what files and messages pass through
    std::vector<Term> bounding, greedy;  ///< one after the other
    uint64_t edge_bytes = 0;             ///< one of greedy's terms

    [[nodiscard]] uint64_t total() const;
    /// Of the terms that are buffers.
    uint64_t buffer_bytes = 0;
};

[[nodiscard]] MemoryPlan plan_memory(const GraphSizes& sizes, int ranks, int64_t parts,
                                     const BoundingRule& rule, uint64_t batch_bytes);

/// OutOfMemoryError if the plan is beyond `memory` bytes: says what would fit.
void check_memory_plan(const MemoryPlan& plan, uint64_t memory, const GraphSizes& sizes, int ranks,
                       int64_t parts, const BoundingRule& rule, uint64_t batch_bytes);

}  // namespace vocabpipe
