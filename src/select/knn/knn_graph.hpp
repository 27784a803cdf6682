// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/knn/find_nearest.hpp"
#include "src/select/knn/find_nearly_nearest.hpp"
#include "src/select/knn/symmetric_graph.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Planned bytes of a rank, by purpose.
struct KnnMemory {
    using Term = std::pair<std::string, uint64_t>;
    std::vector<Term> search, writing;  ///< phases, one after the other
    uint64_t chunk_bytes = 0;           ///< included in `writing`

    [[nodiscard]] uint64_t total() const;
};
[[nodiscard]] KnnMemory plan_knn_memory(int64_t samples, int64_t width, int ranks,
                                        const KnnOptions& options);
/// OutOfMemoryError, with what would fit, if the plan exceeds options.memory.
void check_knn_memory(int64_t samples, int64_t width, int ranks, const KnnOptions& options);

struct KnnReport {
    KnnRate rate;     ///< of an exact search
    HnswReport hnsw;  ///< of one with options.hnsw
    GraphCounts graph;
};

/// Writes the graph of the nearest neighbours of all samples. After an exact search it has the same
/// bytes for any number of ranks and threads, with options.hnsw for the same numbers of them. None,
/// and no file, if a rank was told to end. Collective; OutOfMemoryError and InputFileError on every
/// rank.
std::optional<KnnReport> write_knn_graph(Communicator& world, EmbeddingInput& input,
                                         const std::string& path, const KnnOptions& options,
                                         std::map<std::string, std::string> metadata = {});

}  // namespace vocabpipe
