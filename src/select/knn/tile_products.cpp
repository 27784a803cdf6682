// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/tile_products.hpp"

#include "kernels/host/engine.hpp"
#include "kernels/host/matmul.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

namespace vocabpipe {

namespace {

constexpr size_t kTileCosines = static_cast<size_t>(kKnnTile * kKnnTile);
constexpr size_t kLocks = 64;  // for the tiles of all lists; threads rarely need the same one
constexpr int64_t kStrip = 32;

/// A smaller cosine rounds to less than what the list already has.
float least_cosine(NearestKey threshold) {
    const int32_t similarity = std::max(similarity_of(threshold), 1);
    return (static_cast<float>(similarity) - 0.5F) / static_cast<float>(kFixedPointOne);
}

using LeastCosines = std::array<float, static_cast<size_t>(kKnnTile)>;

/// The least useful cosines of the rows of a tile.
LeastCosines least_cosines(const NearestLists& lists, int64_t first_row) {
    LeastCosines least;
    for (int64_t i = 0; i < kKnnTile; ++i) {
        least[static_cast<size_t>(i)] = least_cosine(lists.threshold(first_row + i));
    }
    return least;
}

/// Offers the pairs of two tiles' rows to the lists of both. `cosines`: its rows are those of
/// `low`, the tile with the smaller ids.
class TileOffers {
public:
    struct Tile {
        int64_t first_id, first_row;  // of all samples, of the lists
        NearestLists* lists;
    };

    TileOffers(const float* cosines, const Tile& low, const Tile& high)
        : cosines_(cosines),
          low_(low),
          high_(high),
          low_least_(least_cosines(*low.lists, low.first_row)),
          high_least_(least_cosines(*high.lists, high.first_row)) {}

    void offer_all() {
        const bool same = low_.first_id == high_.first_id;
        for (int64_t i = 0; i < kKnnTile; ++i) {
            // Within a tile, takes each pair once and no row with itself.
            const int64_t begin = same ? i + 1 : 0;
            for (int64_t j = begin; j < kKnnTile; j = (j / kStrip + 1) * kStrip) {
                if (any_near(i, j)) offer_strip(i, j);
            }
        }
    }

private:
    /// Whether a list may take anything from a strip; most lists take nothing.
    [[nodiscard]] bool any_near(int64_t i, int64_t j) const {
        const float* const row = cosines_ + i * kKnnTile;
        const float of_row = low_least_[static_cast<size_t>(i)];
        const float* const of_columns = high_least_.data();
        int near = 0;
        const int64_t strip = j / kStrip * kStrip;
        for (int64_t x = strip; x < strip + kStrip; ++x) {
            near |= static_cast<int>(row[x] >= of_row) | static_cast<int>(row[x] >= of_columns[x]);
        }
        return near != 0;
    }
    void offer_strip(int64_t i, int64_t begin) {
        const float* const row = cosines_ + i * kKnnTile;
        float& of_row = low_least_[static_cast<size_t>(i)];
        for (int64_t j = begin; j < (begin / kStrip + 1) * kStrip; ++j) {
            float& of_column = high_least_[static_cast<size_t>(j)];
            if (row[j] >= of_row) offer(low_, i, cosine_key(row[j], high_.first_id + j), of_row);
            if (row[j] >= of_column)
                offer(high_, j, cosine_key(row[j], low_.first_id + i), of_column);
        }
    }
    static void offer(const Tile& tile, int64_t row, NearestKey key, float& least) {
        tile.lists->offer(tile.first_row + row, key);
        least = least_cosine(tile.lists->threshold(tile.first_row + row));
    }

    const float* cosines_;
    Tile low_, high_;
    LeastCosines low_least_, high_least_;
};

}  // namespace

/// Two tiles, numbered within their blocks; `use` false: another pair covers this one.
struct TileProducts::Pair {
    int64_t a, b;
    bool use;
};

struct TileProducts::Locks {
    std::array<std::mutex, kLocks> a, b;
};

TileProducts::TileProducts(Context& context, int64_t width)
    : context_(context),
      width_(width),
      cosines_(kTileCosines * static_cast<size_t>(context.threads())),
      locks_(std::make_unique<Locks>()) {}

TileProducts::~TileProducts() = default;

uint64_t TileProducts::bytes(int threads) {
    return static_cast<uint64_t>(threads) * kTileCosines * sizeof(float);
}

double TileProducts::flop() const {
    return static_cast<double>(products_) * 2.0 * kKnnTile * kKnnTile * static_cast<double>(width_);
}

int64_t TileProducts::pairs_within(int64_t tiles) {
    return tiles * (tiles / 2 + 1);
}

void TileProducts::within(const KnnBlock& block, int64_t begin, int64_t end) {
    const int64_t n = block.tiles;
    run(block, block, begin, end, [n](int64_t index) {
        // Pairs with neighbouring indices have no tile in common, so that threads seldom wait.
        const int64_t distance = index / n;
        const int64_t a = index % n;
        const bool twice = distance > 0 && 2 * distance == n && a >= distance;
        return Pair{.a = a, .b = (a + distance) % n, .use = !twice};
    });
}

void TileProducts::between(const KnnBlock& a, const KnnBlock& b, Share share, int64_t begin,
                           int64_t end) {
    run(a, b, begin, end, [&](int64_t index) {
        const int64_t of_a = index % a.tiles;
        const int64_t of_b = (index / a.tiles + of_a) % b.tiles;
        const int64_t parity = (a.first_tile + of_a + b.first_tile + of_b) % 2;
        return Pair{.a = of_a,
                    .b = of_b,
                    .use = share == Share::all || (parity == 0) == (share == Share::even)};
    });
}

template <typename PairAt>
void TileProducts::run(const KnnBlock& a, const KnnBlock& b, int64_t begin, int64_t end,
                       PairAt pair_at) {
    int64_t done = 0;
#pragma omp parallel for num_threads(context_.threads()) schedule(dynamic) reduction(+ : done)
    for (int64_t index = begin; index < end; ++index) {
        const Pair pair = pair_at(index);
        if (!pair.use) continue;
        multiply(a, b, pair, omp_get_thread_num());
        ++done;
    }
    products_ += done;
}

void TileProducts::multiply(const KnnBlock& a, const KnnBlock& b, const Pair& pair, int thread) {
    float* const cosines = cosines_.data() + static_cast<size_t>(thread) * kTileCosines;
    const TileOffers::Tile of_a{.first_id = (a.first_tile + pair.a) * kKnnTile,
                                .first_row = pair.a * kKnnTile,
                                .lists = a.lists};
    const TileOffers::Tile of_b{.first_id = (b.first_tile + pair.b) * kKnnTile,
                                .first_row = pair.b * kKnnTile,
                                .lists = b.lists};
    const float* const rows_of_a = a.rows->tile(pair.a);
    const float* const rows_of_b = b.rows->tile(pair.b);
    // The tile with the smaller ids comes first, whichever rank owns it: both ends get the same
    // similarity.
    const bool ascending = of_a.first_id <= of_b.first_id;
    const kernels::host::MatmulShape product{.m = kKnnTile,
                                             .n = kKnnTile,
                                             .k = width_,
                                             .a_stride = a.rows->stride(),
                                             .b_stride = a.rows->stride(),
                                             .c_stride = kKnnTile,
                                             .transpose_b = true};
    kernels::host::run_matmul(context_.engine(), product, thread, ascending ? rows_of_a : rows_of_b,
                              ascending ? rows_of_b : rows_of_a, cosines);
    std::mutex& lock_a = locks_->a[static_cast<size_t>(pair.a) % kLocks];
    std::mutex& lock_b =
        (a.lists == b.lists ? locks_->a : locks_->b)[static_cast<size_t>(pair.b) % kLocks];
    std::unique_lock first(lock_a, std::defer_lock);
    std::unique_lock second(lock_b, std::defer_lock);
    if (&lock_a == &lock_b) {
        first.lock();
    } else {
        std::lock(first, second);
    }
    if (ascending) {
        TileOffers(cosines, of_a, of_b).offer_all();
    } else {
        TileOffers(cosines, of_b, of_a).offer_all();
    }
}

}  // namespace vocabpipe
