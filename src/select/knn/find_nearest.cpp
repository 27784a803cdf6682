// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/find_nearest.hpp"

#include "kernels/host/gemm.hpp"
#include "src/runtime/gathered.hpp"
#include "src/select/knn/parted_work.hpp"
#include "src/select/knn/ring.hpp"
#include "src/select/knn/tile_products.hpp"
#include "src/select/knn/unit_rows.hpp"
#include "vocabpipe/context.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kPairsAtOnce = 2048;  // tile products between two checks for a request to end

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// FLOP/s of one of the library's own products, with sums as long as in the search, measured while
/// all ranks compute.
double measure_gemm(Context& context, const UnitRows& rows, int64_t tiles) {
    constexpr int64_t kRows = 2048;
    constexpr double kSeconds = 0.1;
    const int64_t n = std::min(kRows, tiles * kKnnTile);
    if (n == 0) return 0;
    std::vector<float> result(static_cast<size_t>(n * n));
    const ConstTensor a(rows.tile(0), n, rows.width(), rows.stride(), DType::fp32);
    const Tensor c(result.data(), n, n, DType::fp32);
    const auto multiply = [&] { kernels::host::gemm(context, a, false, a, true, c, false); };
    multiply();
    int times = 0;
    double seconds = 0;
    for (const auto begun = std::chrono::steady_clock::now(); seconds < kSeconds; ++times) {
        multiply();
        seconds = seconds_since(begun);
    }
    return 2.0 * static_cast<double>(n) * static_cast<double>(n) *
           static_cast<double>(rows.width()) * times / seconds;
}

/// Totals over all ranks: sums, and the maximum of the times.
void add_up_rates(Communicator& world, KnnRate& rate) {
    const std::vector<KnnRate> all = gathered_values(world, rate);
    rate = {};
    for (const KnnRate& other : all) {
        rate.flop += other.flop;
        rate.seconds = std::max(rate.seconds, other.seconds);
        rate.gemm_rate += other.gemm_rate;
    }
}

}  // namespace

std::optional<NearestLists> find_nearest(Communicator& world, EmbeddingInput& input,
                                         const TileOwners& owners, const KnnOptions& options,
                                         KnnRate& rate) {
    const int ranks = world.size();
    const int rank = world.rank();
    const int64_t most = owners.most_tiles();
    const int steps = ranks / 2;
    std::optional<UnitRows> own_rows;
    std::optional<UnitRows> visiting_rows;
    std::optional<NearestLists> own_lists;
    std::optional<NearestLists> visiting_lists;
    std::optional<Context> context;
    std::optional<TileProducts> products;
    world.agree([&] {
        context.emplace(ContextOptions{.threads = options.threads});
        products.emplace(*context, input.width());
        own_rows.emplace(most, input.width());
        own_lists.emplace(most * kKnnTile, options.neighbours);
        if (ranks > 1) {
            visiting_rows.emplace(most, input.width());
            visiting_lists.emplace(most * kKnnTile, options.neighbours);
        }
        options.report("reading", 0, 0);
        own_rows->read(input, owners.begin(rank), owners.end(rank));
    });
    const auto block_of = [&](int owner, UnitRows& rows, NearestLists& lists) {
        return KnnBlock{.first_tile = owners.first_tile(owner),
                        .tiles = owners.tiles(owner),
                        .rows = &rows,
                        .lists = &lists};
    };
    const KnnBlock own = block_of(rank, *own_rows, *own_lists);
    const int64_t pairs_within = TileProducts::pairs_within(most);
    PartedWork work(world, options, "pairs of tiles", pairs_within + steps * most * most,
                    rate.seconds);
    if (!work.run(TileProducts::pairs_within(own.tiles), pairs_within, kPairsAtOnce,
                  [&](int64_t begin, int64_t end) { products->within(own, begin, end); })) {
        return std::nullopt;
    }
    if (ranks > 1) {
        std::ranges::copy(own_rows->all_bytes(), visiting_rows->all_bytes().begin());
        visiting_lists->begin_beside(*own_lists);
    }
    for (int distance = 1; distance <= steps; ++distance) {
        shift_around_ring(world, 1, visiting_rows->all_bytes());
        shift_around_ring(world, 1, visiting_lists->all_bytes());
        const int owner = (rank + ranks - distance) % ranks;
        const KnnBlock visiting = block_of(owner, *visiting_rows, *visiting_lists);
        // Half-way around a ring of even size, two ranks have each other's block.
        const auto share = 2 * distance < ranks ? TileProducts::Share::all
                           : rank < owner       ? TileProducts::Share::even
                                                : TileProducts::Share::odd;
        if (!work.run(own.tiles * visiting.tiles, most * most, kPairsAtOnce,
                      [&](int64_t begin, int64_t end) {
                          products->between(own, visiting, share, begin, end);
                      })) {
            return std::nullopt;
        }
    }
    if (ranks > 1) {
        shift_around_ring(world, ranks - steps, visiting_lists->all_bytes());
        own_lists->take(*visiting_lists);
    }
    rate.flop = products->flop();
    world.barrier();  // all ranks measure at the same time, as they did their work
    rate.gemm_rate = measure_gemm(*context, *own_rows, own.tiles);
    add_up_rates(world, rate);
    return own_lists;
}

}  // namespace vocabpipe
