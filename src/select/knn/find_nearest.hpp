// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/sample_input.hpp"
#include "src/select/knn/hnsw_options.hpp"
#include "src/select/knn/nearest_lists.hpp"
#include "src/select/knn/tiles.hpp"
#include "src/select/ownership.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <optional>

namespace vocabpipe {

inline constexpr int64_t kMostKnnNeighbours = 1'000'000;
inline constexpr int kMostKnnThreads = 1024;

struct KnnOptions {
    int64_t neighbours = 10;                   ///< per sample, before edges are made symmetric
    int threads = 1;                           ///< OpenMP threads per rank
    uint64_t memory = 0;                       ///< bytes per rank; 0: not checked
    uint64_t batch_bytes = uint64_t{1} << 20;  ///< of edges that a rank sends at once
    std::optional<HnswOptions> hnsw = {};      ///< absent: an exact search
    /// Called with the current phase and its progress; may be empty.
    std::function<void(const char* phase, int64_t done, int64_t total)> progress = {};
    /// Asked on every rank; true on one ends all of them. May be empty.
    std::function<bool()> told_to_end = {};

    /// Whether any rank is told to end. Collective.
    [[nodiscard]] bool ends(Communicator& world) const {
        return largest_over_ranks(world, told_to_end && told_to_end() ? 1 : 0) > 0;
    }
    void report(const char* phase, int64_t done, int64_t total) const {
        if (progress) progress(phase, done, total);
    }
};

/// Work and time of the search, the same on every rank.
struct KnnRate {
    double flop = 0;       ///< sum over ranks
    double seconds = 0;    ///< of the slowest rank
    double gemm_rate = 0;  ///< FLOP/s of large products with equally long sums, over all ranks

    [[nodiscard]] double rate() const { return seconds > 0 ? flop / seconds : 0; }
};

/// The nearest neighbours of this rank's samples by cosine, exact up to fp32 rounding: blocks of
/// embeddings travel half-way around the ring of ranks together with their lists, which then return
/// to their owners. None if a rank was told to end. Collective; InputFileError on every rank.
[[nodiscard]] std::optional<NearestLists> find_nearest(Communicator& world, EmbeddingInput& input,
                                                       const TileOwners& owners,
                                                       const KnnOptions& options, KnnRate& rate);

}  // namespace vocabpipe
