// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/bounding.hpp"
#include "src/select/select_context.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// The sizes of a graph that determine the memory of a selection.
struct GraphSizes {
    int64_t nodes = 0, entries = 0;
    int64_t rank_nodes = 0, rank_entries = 0;  ///< largest over the ranks
    int64_t own_entries = 0;                   ///< of this rank
    int64_t longest_row = 0;

    /// Reads the begins of rows. Collective; InputFileError on every rank.
    [[nodiscard]] static GraphSizes of(const SelectContext& context);
    /// Lower bounds, from the numbers of nodes and entries.
    [[nodiscard]] static GraphSizes least(int64_t nodes, int64_t entries, int ranks);
};

/// Planned bytes per rank, by purpose.
struct MemoryPlan {
    using Term = std::pair<std::string, uint64_t>;
    std::vector<Term> always;  ///< the state, and buffers for files and messages
    std::vector<Term> bounding, greedy, certificate;  ///< phases, one after the other
    uint64_t edge_bytes = 0;                          ///< included in `greedy`

    [[nodiscard]] uint64_t total() const;
    /// The terms that are buffers.
    uint64_t buffer_bytes = 0;
    /// Bytes of the files for state, messages and parts that wait, about; 0: none.
    uint64_t disk_bytes = 0;
};

[[nodiscard]] MemoryPlan plan_memory(const GraphSizes& sizes, int ranks, int64_t parts,
                                     const BoundingRule& rule, uint64_t batch_bytes,
                                     const StateBlocks& blocks = {});

/// The fewest blocks of the state with which a plan fits into `memory` bytes; all of the state in
/// memory if that fits, if `memory` is 0, and if nothing fits. The caller sets their folder.
[[nodiscard]] StateBlocks plan_blocks(const GraphSizes& sizes, uint64_t memory, int ranks,
                                      int64_t parts, const BoundingRule& rule,
                                      uint64_t batch_bytes);

/// OutOfMemoryError, with what would fit, if the plan exceeds `memory` bytes.
void check_memory_plan(const MemoryPlan& plan, uint64_t memory, const GraphSizes& sizes, int ranks,
                       int64_t parts, const BoundingRule& rule, uint64_t batch_bytes);

}  // namespace vocabpipe
