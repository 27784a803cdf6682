// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/straight.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using enum Op;

// Megatron's combined 1F1B (overlap_moe_expert_parallel_comm) with sharded vocabulary layers. All
// ranks go in step: an interval is a pair and an output unit, and h hops before the last rank a
// backward is h intervals later, a forward (D-1)h earlier. Every barrier between the last stage's
// F_j and B_j has an interval of its own, as in Figures 10(a) and 10(b) of arXiv 2411.05288.
//
//   p=2, D=2, one barrier, rank 1:  ... F0 S0 | F1 T0 S1 | (B0;F2) T1 S2 | ...
//
// Memory 1+D(p-1-r) microbatches, one per barrier, and one for the pair.
std::vector<Pass> list_of(const ScheduleOptions& options, int rank) {
    const int p = options.ranks;
    const int m = options.microbatches;
    const int depth = std::min(options.rule.warm_up_depth, m + 1);  // all forwards first
    const int hops = p - 1 - rank;
    const int barriers = extra_microbatches(options.vocab_mode);
    // E_j two intervals before rank 0's F_j, so that the sum of its rows is there in time.
    const int looked_up = (depth - 1) * (p - 1) + 3 + barriers;
    std::vector<Pass> list;
    const auto add = [&](Op op, int j) {
        if (j < 0 || j >= m) return false;
        const auto stage = static_cast<uint16_t>(traits(op).has_stage ? rank : 0);
        list.push_back({op, stage, static_cast<uint32_t>(j)});
        return true;
    };
    for (int k = -looked_up; k < m + p; ++k) {
        const bool backward = add(B, k - hops);
        const bool forward = add(F, k + (depth - 1) * hops + 1 + barriers);
        if (backward && forward) list[list.size() - 2].with_next = true;
        if (options.vocab_mode == VocabMode::interlaced) {
            add(S, k + 1);
            add(T, k + 1);
        } else {
            add(T, k + barriers);
            add(S, k + 1 + barriers);
        }
        add(E, k + looked_up);
        add(G, k - p);  // an interval after rank 0's B, so that its gradient is there in time
    }
    return list;
}

}  // namespace

Schedule combined_1f1b(const ScheduleOptions& options) {
    return straight_schedule(options, [&](int rank) { return list_of(options, rank); });
}

}  // namespace vocabpipe
