// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/chunk_list.hpp"
#include "schedules/interleaved_table.hpp"
#include "schedules/placement.hpp"

namespace vocabpipe {

namespace {

using enum Op;

// torch's ScheduleInterleavedZeroBubble. A gradient that is sent after I returns in half the time,
// so one warm-up forward per rank is enough. Rank r keeps r weight gradients for the end.
//
//   p=2, v=2, m=4, rank 0 (stages 0 and 2):
//   0F0 0F1 2F0 | 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 | 2I3 2W3 0I2 ...
//
// Step 3mv+p-1 at F = I = W = 1 per chunk for m mod p = 0; memory vp chunks on every rank.
std::vector<Pass> list_of(const ScheduleOptions& options, const InterleavedTable& table, int rank) {
    ChunkList list(table.stages(rank), options.microbatches);
    int64_t forwards = 0;
    int64_t weights = 0;
    const auto forward = [&] {
        if (forwards == table.size()) return;
        const auto [chunk, microbatch] = table.forward(forwards++);
        list.append(F, chunk, microbatch);
    };
    const auto backward = [&](Op half, int64_t q) {
        const auto [chunk, microbatch] = table.backward(q);
        list.append(half, chunk, microbatch);
    };
    while (forwards < table.warm_up(rank, 1)) forward();
    for (int64_t q = 0; q < table.size(); ++q) {
        forward();
        backward(I, q);
        if (q >= rank) backward(W, weights++);
    }
    while (weights < table.size()) backward(W, weights++);
    return drop_microbatches(std::move(list).take(), options.microbatches);
}

}  // namespace

Schedule interleaved_zb(const ScheduleOptions& options) {
    const InterleavedTable table(options);
    return transformer_schedule(options, Placement::loop, options.rule.chunks,
                                [&](int rank) { return list_of(options, table, rank); });
}

}  // namespace vocabpipe
