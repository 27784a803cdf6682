// SPDX-License-Identifier: Apache-2.0
#include "schedules/zb_v.hpp"

#include "schedules/chunk_list.hpp"
#include "schedules/placement.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using enum Op;

// Qi et al. 2023; the list written by hand of schedules reference 5.9, as torch's
// ScheduleZBVZeroBubble has it.
//
//   p=2, m=3, rank 0 (stages 0 and 3):
//   0F0 0F1 0F2 | 3F0 3I0 3W0 3F1 3I1 3W1 | 0I0 0W0 3F2 3I2 3W2 | 0I1 0W1 0I2 0W2
//
// At F = I = W = 1: largest span 6m, step 6m+p-1, memory 2p chunks on every rank. The rule needs
// m >= 2p-1; below that its list for 2p-1 microbatches is cut.
std::vector<Pass> list_of(const GenerateOptions& options, int rank) {
    constexpr int kDown = 0;  // the chunk on the way down the ranks, holding stage r
    constexpr int kUp = 1;    // on the way up again, stage 2p-1-r
    const int p = options.ranks;
    ChunkList list({rank, 2 * p - 1 - rank}, std::max(options.microbatches, 2 * p - 1));
    const auto forward_and_backward_up = [&] {
        list.emit(F, kUp);
        list.emit(I, kUp);
        list.emit(W, kUp);
    };
    for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.emit(F, kDown);
    for (int i = 0; i < rank; ++i) {
        list.emit(F, kUp);
        list.emit(F, kDown);
    }
    for (int i = 0; i < p - rank; ++i) forward_and_backward_up();
    while (!list.done(F, kUp)) {
        list.emit(F, kDown);
        list.emit(I, kDown);
        list.emit(W, kDown);
        forward_and_backward_up();
    }
    for (int i = 0; i < rank; ++i) {
        list.emit(I, kDown);
        list.emit(I, kUp);
    }
    for (int i = 0; i < p - rank; ++i) {
        list.emit(I, kDown);
        list.emit(W, kDown);
    }
    while (!list.done(W, kUp)) list.emit(W, kUp);
    while (!list.done(W, kDown)) list.emit(W, kDown);
    return drop_microbatches(std::move(list).take(), options.microbatches);
}

}  // namespace

Schedule zb_v(const GenerateOptions& options) {
    return transformer_schedule(options, Placement::v_shape, 2,
                                [&](int rank) { return list_of(options, rank); });
}

}  // namespace vocabpipe
