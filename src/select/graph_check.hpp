// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/graph_file.hpp"
#include "vocabpipe/world.hpp"

#include <array>
#include <cstdint>

namespace vocabpipe {

/// Sums over rows that show whether every edge is in both of its rows with one similarity, and a
/// fingerprint of the graph. Their order does not matter, so ranks add up theirs.
class GraphCheck {
public:
    void add(const GraphRow& row);

    /// Call when every row was added by one rank. InputFileError on every rank if an edge is not in
    /// both rows, with the first such edge, which takes two more passes over the file. `first`,
    /// `last`: the rows that this rank searches. Sums become those of all ranks. Collective.
    void finish(Communicator& world, const GraphFile& graph, int64_t first, int64_t last);

    /// Equal for equal graphs; different graphs have the same one with probability 2^-64.
    [[nodiscard]] uint64_t fingerprint() const { return fingerprint_; }
    [[nodiscard]] int64_t longest_row() const { return longest_row_; }
    [[nodiscard]] int64_t isolated() const { return isolated_; }  ///< rows without neighbours

private:
    std::array<uint64_t, 2> balance_{};  ///< entries below the diagonal minus those above it
    uint64_t fingerprint_ = 0;
    int64_t longest_row_ = 0, isolated_ = 0;
};

/// The check of all rows, split among the ranks. Collective; InputFileError on every rank.
GraphCheck check_graph(Communicator& world, const GraphFile& graph);

}  // namespace vocabpipe
