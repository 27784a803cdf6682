// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/chunk_list.hpp"
#include "schedules/interleaved_table.hpp"
#include "schedules/placement.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using enum Op;

// Narayanan et al. 2021. Forwards and backwards each follow a table; the warm-up is long enough for
// the first microbatch to come back: two forwards per rank.
//
//   p=2, v=2, m=4, rank 0 (stages 0 and 2):
//   0F0 0F1 2F0 2F1 0F2 | 2B0 0F3 2B1 2F2 0B0 2F3 0B1 | 2B2 2B3 0B2 0B3
//
// Step (mv+p-1)(F+B) per chunk for m mod p = 0; memory min(mv, (v-1)N+2(p-1-r)+1) chunks; v times
// the boundary traffic of 1F1B. D = `warm_up_depth` runs D-1 more forwards on every rank before the
// first backward, and takes D-1 more chunks of memory: with D = 2 neighbours in a list are
// independent and can be overlapped (JaxPP's KimiK2, Megatron with the all-to-all of experts
// overlapped).
std::vector<Pass> list_of(const ScheduleOptions& options, const InterleavedTable& table, int rank) {
    ChunkList list(table.stages(rank), options.microbatches);
    const int64_t extra = std::max(1, options.rule.warm_up_depth) - 1;
    const int64_t warm_up = std::min(table.warm_up(rank, 2) + extra, table.size());
    int64_t forwards = 0;
    const auto forward = [&] {
        if (forwards == table.size()) return;
        const auto [chunk, microbatch] = table.forward(forwards++);
        list.append(F, chunk, microbatch);
    };
    while (forwards < warm_up) forward();
    for (int64_t q = 0; q < table.size(); ++q) {
        forward();
        const auto [chunk, microbatch] = table.backward(q);
        list.append(B, chunk, microbatch);
    }
    return drop_microbatches(std::move(list).take(), options.microbatches);
}

}  // namespace

Schedule interleaved(const ScheduleOptions& options) {
    const InterleavedTable table(options);
    return transformer_schedule(options, Placement::loop, options.rule.chunks,
                                [&](int rank) { return list_of(options, table, rank); });
}

}  // namespace vocabpipe
