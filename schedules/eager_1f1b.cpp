// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/placement.hpp"
#include "schedules/rank_list.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using enum Op;

// 1F1B with a deeper warm-up; D = 2 is JaxPP's Eager1F1B. Rank r runs 1+D(p-1-r) forwards, then
// every backward makes room for one forward.
//
//   p=2, D=2, rank 0:  F0 F1 F2 | B0 F3 B1 F4 ... | B(m-3) B(m-2) B(m-1)
//
// Bubble (p-1)(F+B) for every D. A hop of c adds 2c(p-1) to a step while 2c <= (D-1)(F+B); with D =
// 1 it adds at least 2c per microbatch. Memory min(m, 1+D(p-1-r)) microbatches on rank r.
std::vector<Pass> list_of(const ScheduleOptions& options, int depth, int rank) {
    const int m = options.microbatches;
    RankList list(rank, m, m);
    const int64_t warm_up = 1 + int64_t{depth} * (options.ranks - 1 - rank);
    for (int64_t i = 0; i < std::min<int64_t>(warm_up, m); ++i) list.emit(F);
    for (int i = 0; i < m; ++i) list.emit(B, F);
    return std::move(list).take();
}

}  // namespace

Schedule eager_1f1b(const ScheduleOptions& options) {
    if (options.rule.overlap_pairs && sharded(options.vocab_mode) && options.ranks > 1) {
        return combined_1f1b(options);
    }
    const int depth = options.rule.warm_up_depth == 0 ? 2 : options.rule.warm_up_depth;
    return transformer_schedule(options, Placement::straight, 1,
                                [&](int rank) { return list_of(options, depth, rank); });
}

}  // namespace vocabpipe
