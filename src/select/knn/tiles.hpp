// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/ownership.hpp"

#include <algorithm>
#include <cstdint>

namespace vocabpipe {

/// Samples per tile; one product gives 256 x 256 cosines. The grid of tiles begins at sample 0, so
/// every product is the same for any number of ranks.
inline constexpr int64_t kKnnTile = 256;

/// The owner of each sample: whole tiles, in the order of the ranks.
class TileOwners {
public:
    TileOwners(int64_t samples, int ranks)
        : samples_(samples), tiles_((samples + kKnnTile - 1) / kKnnTile, ranks) {}

    [[nodiscard]] int64_t samples() const { return samples_; }
    [[nodiscard]] int ranks() const { return tiles_.ranks(); }
    [[nodiscard]] int64_t first_tile(int rank) const { return tiles_.begin(rank); }
    [[nodiscard]] int64_t tiles(int rank) const { return tiles_.count(rank); }
    /// Largest number of tiles on a rank.
    [[nodiscard]] int64_t most_tiles() const { return tiles_.largest(); }

    [[nodiscard]] int64_t begin(int rank) const {
        return std::min(tiles_.begin(rank) * kKnnTile, samples_);
    }
    [[nodiscard]] int64_t end(int rank) const { return begin(rank + 1); }
    [[nodiscard]] int owner_of(int64_t sample) const { return tiles_.owner_of(sample / kKnnTile); }

private:
    int64_t samples_;
    Ownership tiles_;
};

}  // namespace vocabpipe
