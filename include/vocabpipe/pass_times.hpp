// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// When every pass of a schedule runs if ranks run their lists in order and wait only for inputs,
/// and messages occupy no rank. A fast estimate for searches (about 50 ns per pass); simulate()
/// runs the lowered program with its buffers, lanes and collectives.
struct PassTimes {
    std::vector<std::vector<int64_t>> begin;  ///< [rank][position in the list]
    std::vector<std::vector<int64_t>> end;    ///< [rank][position in the list]
    int64_t makespan = 0;                     ///< first begin to last end over all ranks
    int64_t largest_span = 0;                 ///< largest of first begin to last end within a rank
    std::vector<int64_t> span;                ///< [rank]
    std::vector<int64_t> busy;                ///< [rank]
};

/// Throws ScheduleError if the lists deadlock. The schedule must be valid otherwise; its shard maps
/// may have 0 rows (transformer passes only). `exchange_permille`, as TableCosts has it: above 0,
/// the two passes of a pair run at the same time, as simulate() says; else in the order of the
/// list.
[[nodiscard]] PassTimes time_passes(const Schedule& schedule, const PassCosts& costs,
                                    int64_t exchange_permille = 0);

/// Largest number of activations alive on every rank, in chunks: one from the start of F to the end
/// of W or B. I frees none: W still needs the stage's input and the output gradient.
[[nodiscard]] std::vector<int> peak_chunks(const Schedule& schedule);

}  // namespace vocabpipe
