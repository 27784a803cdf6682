// SPDX-License-Identifier: Apache-2.0
#include "schedules/straight.hpp"

#include "schedules/rank_list.hpp"

#include <algorithm>

namespace vocabpipe {

Schedule straight_schedule(const ScheduleOptions& options,
                           const std::function<std::vector<Pass>(int)>& list_of) {
    const int p = options.ranks;
    Schedule schedule;
    schedule.ranks = schedule.stages = p;
    schedule.microbatches = options.microbatches;
    for (int rank = 0; rank < p; ++rank) {
        schedule.rank_of_stage.push_back(rank);
        schedule.passes.push_back(options.forward_only ? evaluation_list(options, rank)
                                                       : list_of(rank));
    }
    place_vocabulary(schedule, options.vocab_mode, options.vocab_size);
    return schedule;
}

// With equal stages the last stage ends F_j when rank r ends its (p-r+j)-th forward, so S_0 follows
// p-r forwards, and S and F alternate from there on. Rank r runs E_{i+r+1} before F_i, so that all
// ranks look up the same microbatch at about the same time and rank 0 has one interval to sum it
// before its F.
std::vector<Pass> evaluation_list(const ScheduleOptions& options, int rank) {
    using enum Op;
    const int p = options.ranks;
    const int m = options.microbatches;
    RankList list(rank, m, m);
    if (!sharded(options.vocab_mode)) {
        for (int i = 0; i < m; ++i) {
            if (rank == 0) list.emit(E);
            list.emit(F);
            if (rank == p - 1) list.emit(S);
        }
        return std::move(list).take();
    }
    for (int i = 0; i < std::min(rank + 1, m); ++i) list.emit(E);
    for (int i = 1; i <= m; ++i) {
        list.emit(E, F);
        if (i >= p - rank) list.emit(S);
    }
    while (list.emitted(S) < m) list.emit(S);
    return std::move(list).take();
}

}  // namespace vocabpipe
