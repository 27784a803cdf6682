// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/graph_file.hpp"
#include "vocabpipe/world.hpp"

#include <array>
#include <cstdint>

namespace vocabpipe {

/// Sums over rows that say whether every edge stands in both of its rows with one similarity, and
/// what graph it is. Their order does not matter, so ranks add up theirs.
class GraphCheck {
public:
    void add(const GraphRow& row);

    /// Collective, when every row was added by one rank. InputFileError on every rank if some edge
    /// does not stand in both rows: names the first, which takes two more passes over the file.
    /// `first`, `last`: the rows that this rank is to search. Sums become those of all ranks.
    void finish(Communicator& world, const GraphFile& graph, int64_t first, int64_t last);

    /// The same for equal graphs alone, but for a chance of 2^-64.
    [[nodiscard]] uint64_t fingerprint() const { return fingerprint_; }
    [[nodiscard]] int64_t longest_row() const { return longest_row_; }
    [[nodiscard]] int64_t isolated() const { return isolated_; }  ///< rows without neighbours

private:
    std::array<uint64_t, 2> balance_{};  ///< entries below the diagonal less those above it
    uint64_t fingerprint_ = 0;
    int64_t longest_row_ = 0, isolated_ = 0;
};

/// All of it for all rows, each rank a part of them. Collective; InputFileError on every rank.
GraphCheck check_graph(Communicator& world, const GraphFile& graph);

}  // namespace vocabpipe
