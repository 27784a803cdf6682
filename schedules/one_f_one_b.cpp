// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/rank_list.hpp"
#include "schedules/straight.hpp"
#include "schedules/vocabulary_slots.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using enum Op;

// Narayanan et al. 2021. Rank r fills the pipeline with p-r forwards, then every backward makes
// room for one forward. Whole vocabulary layers sit on the first and last rank.
//
//   p=4, rank 2:  F0 F1 | B0 F2 B1 F3 ... | B(m-2) B(m-1)
std::vector<Pass> plain(const ScheduleOptions& options, int rank) {
    const int m = options.microbatches;
    const bool first = rank == 0;
    const bool last = rank == options.ranks - 1;
    RankList list(rank, m, m);
    const auto forward = [&] {
        if (first) list.emit(E);
        list.emit(F);
        if (last) list.emit(S, T);
    };
    const auto backward = [&] {
        list.emit(B);
        if (first) list.emit(G);
    };
    for (int i = 0; i < options.ranks - rank; ++i) forward();
    for (int i = 0; i < m; ++i) {
        backward();
        forward();
    }
    return std::move(list).take();
}

// Figures 10(a) and 10(b) of arXiv 2411.05288 as its authors' code (sail-sg/VocabularyParallelism)
// runs them. Every barrier between the last stage's F_j and B_j costs one more microbatch in
// flight.
//
//   p=4, one barrier, rank 3:  E0..E4 F0 S0 F1 | B0 T0 S1 F2 | B1 T1 S2 F3 | ...
std::vector<Pass> with_barriers(const ScheduleOptions& options, int rank, int barriers,
                                const std::vector<UnitSlot>& slots) {
    const int p = options.ranks;
    const int warm_up_forwards = p - rank;
    const int in_flight = warm_up_forwards + barriers;
    const int m =
        std::max(options.microbatches, p + barriers);  // least number that the rule supports
    const UnitSlot& slot = slots[static_cast<size_t>(rank)];
    RankList list(rank, m, options.microbatches);
    UnitWriter units(list, barriers, slots.front().warm_up_units);

    for (int i = 0; i < rank + 1; ++i) list.emit(E);
    for (int i = 0; i < warm_up_forwards; ++i) list.emit(E, F);
    units.unit();  // only S_0
    if (barriers == 2) {
        list.emit(E, F);
        units.unit();
    }
    list.emit(F);
    for (int i = 0; i < slot.warm_up_units; ++i) units.unit();

    for (int i = 0; i < m - in_flight; ++i) {  // steady state
        list.emit(B);
        if (!slot.before_forward) list.emit(F);
        units.unit();
        units.gradient();
        if (slot.before_forward) list.emit(F);
    }
    for (int i = 0; i < in_flight; ++i) {  // cool-down
        list.emit(B);
        units.unit();
        units.gradient();
    }
    while (list.emitted(G) < m) list.emit(G);
    list.emit(T);  // one barrier: the last T; two barriers: all are done
    return std::move(list).take();
}

// The vocabulary layers as tensor parallelism over the pipeline ranks: S_j T_j is one synchronous
// unit on all of them, as in the interlaced schedule of sail-sg/VocabularyParallelism. Neighbours
// run F and B in opposite orders, so that a backward needs one interval per rank and a forward one
// per two ranks: 3p/2 microbatches in flight.
//
//   p=4, rank 3:  E0..E4 F0 E5 F1 E6 F2 | ST0 | B0 ST1 B1 ST2 | B2 F3 ST3 E7 | B3 F4 ST4 | ...
std::vector<Pass> interlaced(const ScheduleOptions& options, int rank) {
    const int p = options.ranks;
    const int depth = 3 * p / 2;
    const int m = std::max(options.microbatches, depth + 1);
    const int warm_up_forwards = depth - rank;
    const int units_before_backward = p - rank;
    const int backwards_before_forward = std::max(0, p / 2 - (p - rank - 1) / 2);
    const int units_of_drain = p / 2 - backwards_before_forward;
    const bool forward_first = rank % 2 == p % 2;
    RankList list(rank, m, options.microbatches);

    const auto unit = [&] {
        list.emit(S, T);
        if (list.emitted(S) >= p) list.emit(E);
    };
    // Odd p: rank 0 runs B_j in the slot on which G_j rides. The authors' code starts the broadcast
    // for G_j at the beginning of that slot, before there is a gradient, and fails. Here the
    // broadcast is inferred from B_j, wherever it is in the list, so the order is valid as it is.
    const auto gradient = [&] {
        if (list.emitted(S) >= p + 2 - p % 2) list.emit(G);
    };
    for (int i = 0; i < rank + 1; ++i) list.emit(E);
    for (int i = 0; i < warm_up_forwards; ++i) list.emit(E, F);
    for (int i = 0; i < units_before_backward; ++i) unit();
    for (int i = 0; i < backwards_before_forward; ++i) {
        list.emit(B);
        unit();
        gradient();
    }
    for (int i = 0; i < m - warm_up_forwards; ++i) {  // steady state
        if (forward_first) {
            list.emit(F, B);
        } else {
            list.emit(B, F);
        }
        unit();
        gradient();
    }
    for (int i = 0; i < units_of_drain; ++i) list.emit(B, S, T, G);
    for (int i = 0; i < units_before_backward; ++i) list.emit(B, G);
    while (list.emitted(G) < m) list.emit(G);
    return std::move(list).take();
}

}  // namespace

Schedule one_f_one_b(const ScheduleOptions& options) {
    // The orders below, vocabulary passes included, assume a depth of 1 and no pairs.
    if (options.rule.warm_up_depth > 1) return eager_1f1b(options);
    // On one rank nothing waits: every mode is E F S T B G, one microbatch in flight.
    const bool alone = options.ranks == 1;
    if (alone || !sharded(options.vocab_mode)) {
        return straight_schedule(options, [&](int rank) { return plain(options, rank); });
    }
    if (options.vocab_mode == VocabMode::interlaced) {
        return straight_schedule(options, [&](int rank) { return interlaced(options, rank); });
    }
    const int barriers = options.vocab_mode == VocabMode::two_barriers ? 2 : 1;
    const std::vector<UnitSlot> slots =
        unit_slots(options.ranks, options.costs.mean(F),
                   options.costs.mean(B) - options.rule.broadcast_margin);
    return straight_schedule(
        options, [&](int rank) { return with_barriers(options, rank, barriers, slots); });
}

}  // namespace vocabpipe
