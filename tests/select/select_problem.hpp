// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/graph_file.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"
#include "vocabpipe/world.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// Samples with utilities and undirected edges, each once: the problems of subset.py.
struct SelectProblem {
    std::vector<int32_t> utility;
    std::vector<std::array<int64_t, 3>> edges;  ///< smaller end, larger end, similarity
    PairwiseObjective objective;

    [[nodiscard]] int64_t size() const { return std::ssize(utility); }
    /// Lines "u V U" and "e A B S".
    [[nodiscard]] std::string text() const;
    /// The objective of a set, from its definition.
    [[nodiscard]] int64_t value(const std::vector<int64_t>& set) const;
};

/// subset.py's generate(): points in clusters, and the nearest neighbours of each.
[[nodiscard]] SelectProblem clustered_problem(uint64_t seed, int64_t n, int64_t dim,
                                              int64_t clusters, int64_t neighbours,
                                              PairwiseObjective objective);
/// n samples with about `degree` neighbours each, and few different values: many ties.
[[nodiscard]] SelectProblem random_problem(uint64_t seed, int64_t n, int64_t degree,
                                           int32_t most_utility, int32_t most_similarity);

/// The files of a problem.
[[nodiscard]] Corpus corpus_of(const SelectProblem& problem);
void write_graph(Communicator& world, const std::string& path, const SelectProblem& problem,
                 int64_t most_narrow_nodes = GraphFile::kMostNarrowNodes);
void write_utility(Communicator& world, const std::string& path, const SelectProblem& problem);

/// What all ranks have decided so, ascending.
[[nodiscard]] std::vector<int64_t> all_with(Communicator& world, const SelectionState& state,
                                            Decision decision);
/// "V\n" for each.
[[nodiscard]] std::string lines_of(const std::vector<int64_t>& set);

}  // namespace vocabpipe::testing
