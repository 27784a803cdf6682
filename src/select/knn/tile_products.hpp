// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/knn/nearest_lists.hpp"
#include "src/select/knn/unit_rows.hpp"
#include "vocabpipe/context.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace vocabpipe {

/// The rows of one rank, at home or on their way around the ring.
struct KnnBlock {
    int64_t first_tile = 0, tiles = 0;  ///< `first_tile` counts all samples' tiles
    const UnitRows* rows = nullptr;
    NearestLists* lists = nullptr;
};

/// Multiplies pairs of tiles and offers the results to the lists of both: every pair of samples
/// once.
class TileProducts {
public:
    /// Uses the threads of the context.
    TileProducts(Context& context, int64_t width);
    ~TileProducts();
    TileProducts(const TileProducts&) = delete;
    TileProducts& operator=(const TileProducts&) = delete;
    [[nodiscard]] static uint64_t bytes(int threads);

    /// Which pairs of two blocks to take: half of them if both ranks work on the same two blocks.
    enum class Share : uint8_t { all, even, odd };
    [[nodiscard]] static int64_t pairs_within(int64_t tiles);

    /// Runs the pairs [begin, end) within `block`, in the numbering of pairs_within().
    void within(const KnnBlock& block, int64_t begin, int64_t end);
    /// Runs the pairs [begin, end) of the a.tiles * b.tiles pairs of two blocks of different
    /// samples.
    void between(const KnnBlock& a, const KnnBlock& b, Share share, int64_t begin, int64_t end);

    /// Number of tile products so far.
    [[nodiscard]] int64_t products() const { return products_; }
    [[nodiscard]] double flop() const;

private:
    struct Locks;
    struct Pair;
    template <typename PairAt>
    void run(const KnnBlock& a, const KnnBlock& b, int64_t begin, int64_t end, PairAt pair_at);
    void multiply(const KnnBlock& a, const KnnBlock& b, const Pair& pair, int thread);

    Context& context_;
    int64_t width_;
    int64_t products_ = 0;
    std::vector<float> cosines_;  ///< one tile per thread
    std::unique_ptr<Locks> locks_;
};

}  // namespace vocabpipe
