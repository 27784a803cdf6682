// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/corpus.hpp"
#include "src/select/knn/find_nearest.hpp"
#include "src/select/knn/neighbour_rows.hpp"
#include "src/select/knn/tiles.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace vocabpipe {

/// Sizes of a graph, the same on every rank.
struct GraphCounts {
    int64_t entries = 0;  ///< twice the edges
    int64_t longest_row = 0;
    int64_t without_neighbours = 0;  ///< samples
};

/// Bytes for the rows that are collected at once, and for messages of other ranks.
[[nodiscard]] uint64_t symmetric_graph_bytes(int64_t rows, int ranks, const KnnOptions& options,
                                             uint64_t chunk_bytes);

/// Writes the graph in which v and w are neighbours if one of them is among the nearest of the
/// other. Owners collect rows `chunk_bytes` at a time; a longer row takes more, with an
/// OutOfMemoryError if that exceeds options.memory. Collective.
GraphCounts write_symmetric_graph(Communicator& world, const TileOwners& owners,
                                  const NeighbourRows& nearest, const KnnOptions& options,
                                  uint64_t chunk_bytes, const std::string& path,
                                  const Corpus& corpus,
                                  std::map<std::string, std::string> metadata);

}  // namespace vocabpipe
