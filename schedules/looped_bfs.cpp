// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/chunk_list.hpp"
#include "schedules/placement.hpp"

namespace vocabpipe {

namespace {

using enum Op;

// Lamy-Poirier 2023. Backwards run from the last microbatch to the first.
//
//   p=2, v=2, m=2, rank 0 (stages 0 and 2):  0F0 0F1 2F0 2F1 | 2B1 2B0 0B1 0B0
//
// Step (mv+p-1)(F+B) per chunk for m mod p = 0, memory mv chunks.
std::vector<Pass> list_of(const ScheduleOptions& options, int rank) {
    const int m = options.microbatches;
    std::vector<int> stages;
    for (int chunk = 0; chunk < options.rule.chunks; ++chunk) {
        stages.push_back(chunk * options.ranks + rank);
    }
    ChunkList list(std::move(stages), m);
    for (int chunk = 0; chunk < options.rule.chunks; ++chunk) {
        for (int j = 0; j < m; ++j) list.append(F, chunk, j);
    }
    for (int chunk = options.rule.chunks - 1; chunk >= 0; --chunk) {
        for (int j = m - 1; j >= 0; --j) list.append(B, chunk, j);
    }
    return std::move(list).take();
}

}  // namespace

Schedule looped_bfs(const ScheduleOptions& options) {
    return transformer_schedule(options, Placement::loop, options.rule.chunks,
                                [&](int rank) { return list_of(options, rank); });
}

}  // namespace vocabpipe
