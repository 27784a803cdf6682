// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/sample_input.hpp"
#include "src/select/knn/find_nearest.hpp"
#include "src/select/knn/nearest_lists.hpp"
#include "src/select/knn/tiles.hpp"
#include "vocabpipe/world.hpp"

#include <optional>

namespace vocabpipe {

/// Time and success of a search with indices, the same on every rank.
struct HnswReport {
    double indexing = 0, searching = 0;  ///< seconds of the slowest rank
    double recall = 0;                   ///< measure_recall()
};

/// Neighbours of this rank's samples by cosine, most of them the nearest. Each thread of each rank
/// has an index of an equal share of the samples; embeddings and their lists travel once around the
/// ring of ranks and search in every index. None if a rank was told to end. Collective;
/// InputFileError on every rank.
[[nodiscard]] std::optional<NearestLists> find_nearly_nearest(Communicator& world,
                                                              EmbeddingInput& input,
                                                              const TileOwners& owners,
                                                              const KnnOptions& options,
                                                              HnswReport& report);

}  // namespace vocabpipe
