// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/rank_list.hpp"
#include "schedules/straight.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

using enum Op;

// Huang et al. 2019. The last rank runs S_j T_j directly after F_j, so only one exp_logits is alive
// at a time, and the backward phase is only B. Running them before B_j instead takes as long.
std::vector<Pass> plain(const ScheduleOptions& options, int rank) {
    const int m = options.microbatches;
    RankList list(rank, m, m);
    for (int i = 0; i < m; ++i) {
        if (rank == 0) list.emit(E);
        list.emit(F);
        if (rank == options.ranks - 1) list.emit(S, T);
    }
    for (int i = 0; i < m; ++i) {
        list.emit(B);
        if (rank == 0) list.emit(G);
    }
    return std::move(list).take();
}

// Vocabulary layers on every rank. The whole output layer belongs to the forward phase, because no
// backward waits in between: rank r runs p-r forwards, which is when the last stage has ended F_0,
// then one unit after every forward. With one or two barriers a unit is T_{j-1} S_j, so that there
// is a whole F to combine the statistics of j-1, and one exp_logits is alive at a time; with
// interlaced it is S_j T_j.
//
// E runs r+1 microbatches ahead of F and G r+1 behind B, so that all ranks reach the same
// microbatch at about the same time and its sum or broadcast has one interval. (G_j right after B_j
// would make the last rank wait for j to travel to rank 0, once per microbatch.)
//
//   p=4, rank 2:  E0 E1 E2 | E3 F0 E4 F1 S0 E5 F2 T0 S1 ... F7 T5 S6 | T6 S7 T7 | B0 B1 B2 B3 G0
//   ...
std::vector<Pass> with_vocabulary(const ScheduleOptions& options, int rank) {
    const int p = options.ranks;
    const int m = options.microbatches;
    const bool in_line = options.vocab_mode == VocabMode::interlaced;
    RankList list(rank, m, m);
    const auto unit = [&] {
        if (in_line) {
            list.emit(S, T);
        } else {
            if (list.emitted(S) > 0) list.emit(T);
            list.emit(S);
        }
    };
    for (int i = 0; i < rank + 1; ++i) list.emit(E);
    for (int i = 1; i <= m; ++i) {
        list.emit(E, F);
        if (i >= p - rank) unit();
    }
    while (list.emitted(T) < m) unit();
    for (int i = 0; i < m; ++i) {
        list.emit(B);
        if (i > rank) list.emit(G);
    }
    while (list.emitted(G) < m) list.emit(G);
    return std::move(list).take();
}

}  // namespace

Schedule gpipe(const ScheduleOptions& options) {
    const auto list_of = sharded(options.vocab_mode) ? with_vocabulary : plain;
    return straight_schedule(options, [&](int rank) { return list_of(options, rank); });
}

}  // namespace vocabpipe
