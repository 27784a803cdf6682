// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/find_nearly_nearest.hpp"

#include "src/runtime/gathered.hpp"
#include "src/select/knn/hnsw_index.hpp"
#include "src/select/knn/parted_work.hpp"
#include "src/select/knn/recall.hpp"
#include "src/select/knn/ring.hpp"
#include "src/select/knn/unit_rows.hpp"
#include "src/select/ownership.hpp"
#include "vocabpipe/context.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kRowsOfThread = 1024;  // of a thread, between two checks for a request to end

/// Calls `work` on every thread. An exception of one of them is thrown when all have ended.
void on_threads(int threads, const std::function<void(int thread)>& work) {
    std::exception_ptr failure;
#pragma omp parallel num_threads(threads)
    {
        try {
            work(omp_get_thread_num());
        } catch (...) {
#pragma omp critical(hnsw_failure)
            failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

/// False: a rank was told to end.
bool build(Communicator& world, const KnnOptions& options, const UnitRows& rows, int64_t count,
           int64_t most, std::vector<HnswIndex>& indices, double& seconds) {
    const Ownership shares(count, options.threads);
    world.agree([&] {
        for (int t = 0; t < options.threads; ++t) {
            indices.emplace_back(rows, shares.begin(t), shares.count(t), *options.hnsw);
        }
    });
    const int64_t of_thread = Ownership(most, options.threads).largest();
    PartedWork work(world, options, "samples of a thread's index", of_thread, seconds);
    return work.run(of_thread, of_thread, kRowsOfThread, [&](int64_t begin, int64_t end) {
        on_threads(options.threads, [&](int t) {
            const int64_t last = std::min(shares.begin(t) + end, shares.end(t));
            for (int64_t row = shares.begin(t) + begin; row < last; ++row) {
                indices[static_cast<size_t>(t)].add(row);
            }
        });
    });
}

/// The largest times of all ranks.
void take_slowest(Communicator& world, HnswReport& report) {
    for (const HnswReport& other : gathered_values(world, report)) {
        report.indexing = std::max(report.indexing, other.indexing);
        report.searching = std::max(report.searching, other.searching);
    }
}

}  // namespace

std::optional<NearestLists> find_nearly_nearest(Communicator& world, EmbeddingInput& input,
                                                const TileOwners& owners, const KnnOptions& options,
                                                HnswReport& report) {
    const int ranks = world.size();
    const int rank = world.rank();
    const int64_t most = owners.most_tiles() * kKnnTile;
    const int64_t own_count = owners.end(rank) - owners.begin(rank);
    std::optional<UnitRows> own;
    std::optional<UnitRows> visiting;
    std::optional<NearestLists> lists;
    std::optional<Context> context;
    world.agree([&] {
        context.emplace(ContextOptions{.threads = options.threads});
        own.emplace(owners.most_tiles(), input.width());
        if (ranks > 1) visiting.emplace(owners.most_tiles(), input.width());
        lists.emplace(most, options.neighbours);
        options.report("reading", 0, 0);
        own->read(input, owners.begin(rank), owners.end(rank));
    });
    std::vector<HnswIndex> indices;
    if (!build(world, options, *own, own_count, most, indices, report.indexing)) {
        return std::nullopt;
    }
    if (ranks > 1) std::ranges::copy(own->all_bytes(), visiting->all_bytes().begin());
    PartedWork work(world, options, "searches of a rank", ranks * most, report.searching);
    for (int distance = 0; distance < ranks; ++distance) {
        const int owner = (rank + ranks - distance) % ranks;
        const UnitRows& queries = ranks > 1 ? *visiting : *own;
        const int64_t first_query = owners.begin(owner);
        const int64_t first_row = owners.begin(rank);
        const auto search = [&](int64_t query) {
            for (const HnswIndex& index : indices) {
                // The sample itself may be among them.
                index.search(queries.row(query), options.neighbours + 1,
                             [&](int64_t row, float cosine) {
                                 const int64_t id = first_row + row;
                                 if (id == first_query + query) return;
                                 lists->offer(query, cosine_key(cosine, id));
                             });
            }
        };
        if (!work.run(owners.end(owner) - first_query, most, kRowsOfThread * options.threads,
                      [&](int64_t begin, int64_t end) {
                          std::atomic<int64_t> next = begin;
                          on_threads(options.threads, [&](int) {
                              for (int64_t query = next++; query < end; query = next++) {
                                  search(query);
                              }
                          });
                      })) {
            return std::nullopt;
        }
        if (ranks == 1) break;
        // Lists come home after a whole round.
        shift_around_ring(world, 1, lists->all_bytes());
        if (distance + 1 < ranks) shift_around_ring(world, 1, visiting->all_bytes());
    }
    take_slowest(world, report);
    options.report("recall", 0, 0);
    report.recall = measure_recall(world, *context, *own, *lists, owners, options.neighbours,
                                   options.hnsw->recall_samples);
    return lists;
}

}  // namespace vocabpipe
