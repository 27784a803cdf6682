// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/recall.hpp"

#include "kernels/host/gemm.hpp"
#include "src/runtime/gathered.hpp"
#include "src/select/ownership.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace vocabpipe {

namespace {

/// Rows of the samples on all ranks, one behind the other, in order of their ids.
std::vector<float> gather_rows(Communicator& world, const UnitRows& rows, const TileOwners& owners,
                               const std::vector<int64_t>& ids) {
    std::vector<float> own;
    for (const int64_t id : ids) {
        if (owners.owner_of(id) != world.rank()) continue;
        const float* const row = rows.row(id - owners.begin(world.rank()));
        own.insert(own.end(), row, row + rows.stride());
    }
    std::vector<float> all;
    for (const auto& of_rank : gathered_lists(world, std::span<const float>(own))) {
        all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    return all;
}

/// The nearest of the samples among this rank's rows.
NearestLists nearest_here(Context& context, const UnitRows& rows, const TileOwners& owners,
                          int rank, const std::vector<int64_t>& ids, const float* queries,
                          int64_t neighbours) {
    const int64_t count = std::ssize(ids);
    NearestLists lists(count, neighbours);
    std::vector<float> cosines(static_cast<size_t>(count * kKnnTile));
    const ConstTensor a(queries, count, rows.width(), rows.stride(), DType::fp32);
    const Tensor c(cosines.data(), count, kKnnTile, DType::fp32);
    for (int64_t tile = 0; tile < owners.tiles(rank); ++tile) {
        const ConstTensor b(rows.tile(tile), kKnnTile, rows.width(), rows.stride(), DType::fp32);
        kernels::host::gemm(context, a, false, b, true, c, false);
        const int64_t first = (owners.first_tile(rank) + tile) * kKnnTile;
        for (int64_t i = 0; i < count; ++i) {
            for (int64_t j = 0; j < kKnnTile; ++j) {
                if (first + j == ids[static_cast<size_t>(i)]) continue;
                lists.offer(i,
                            cosine_key(cosines[static_cast<size_t>(i * kKnnTile + j)], first + j));
            }
        }
    }
    return lists;
}

}  // namespace

double measure_recall(Communicator& world, Context& context, const UnitRows& rows,
                      const NearestLists& lists, const TileOwners& owners, int64_t neighbours,
                      int64_t samples) {
    std::vector<int64_t> ids(static_cast<size_t>(std::min(samples, owners.samples())));
    const Ownership parts(owners.samples(), static_cast<int>(ids.size()));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = parts.begin(static_cast<int>(i));
    const std::vector<float> queries = gather_rows(world, rows, owners, ids);
    NearestLists here =
        nearest_here(context, rows, owners, world.rank(), ids, queries.data(), neighbours);
    NearestLists nearest(std::ssize(ids), neighbours);
    for (const auto& bytes : world.all_gather(here.all_bytes())) {
        std::ranges::copy(bytes, here.all_bytes().begin());
        nearest.take(here);
    }
    int64_t hits = 0;
    int64_t all = 0;
    for (int64_t i = 0; i < std::ssize(ids); ++i) {
        const int64_t id = ids[static_cast<size_t>(i)];
        if (owners.owner_of(id) != world.rank()) continue;
        int64_t there = 0;
        for (const NearestKey key : nearest.row(i)) there += key != 0 ? 1 : 0;
        const int32_t least = similarity_of(std::ranges::min(nearest.row(i)));
        int64_t found = 0;
        for (const NearestKey key : lists.row(id - owners.begin(world.rank()))) {
            // The two searches may round a cosine differently.
            found += key != 0 && similarity_of(key) >= least - 1 ? 1 : 0;
        }
        hits += std::min(found, there);
        all += there;
    }
    hits = sum_over_ranks(world, hits);
    all = sum_over_ranks(world, all);
    return all > 0 ? static_cast<double>(hits) / static_cast<double>(all) : 1;
}

uint64_t recall_bytes(int64_t width, int ranks, int64_t neighbours, int64_t samples) {
    const auto row = static_cast<uint64_t>(UnitRows::stride_of(width)) * sizeof(float);
    const uint64_t rows = 2 * static_cast<uint64_t>(samples) * row;
    const auto cosines = static_cast<uint64_t>(samples * kKnnTile) * sizeof(float);
    return rows + cosines +
           static_cast<uint64_t>(ranks + 2) * NearestLists::bytes(samples, neighbours);
}

}  // namespace vocabpipe
