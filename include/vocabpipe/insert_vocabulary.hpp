// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>

namespace vocabpipe {

/// What insert_vocabulary() adds.
struct InsertOptions {
    VocabMode mode = VocabMode::one_barrier;  ///< shards, barriers and places
    int64_t vocab_size = 1;                   ///< rows in all
    PassCosts costs;                          ///< what passes take; only ratios matter
    /// Most activations alive on a rank, in chunks; 0: aim for the base's own peak and one
    /// microbatch more per barrier, which is what a barrier costs (paper, section 5.2).
    int chunk_limit = 0;
};

/// Adds E, S, T and G to a schedule of transformer passes (any placement, B or I and W, any order;
/// shard maps of 0 rows), for every vocabulary mode.
///
/// Whole layers (none, redistributed) go directly next to the stage they belong to. Sharded ones
/// are placed by slack. All passes get the times they have in the base; a barrier needs every rank
/// to have done its part, so backwards move later by one interval (the work of one microbatch) per
/// barrier, or by as little as the barrier needs; S, T, E and G get the earliest time at which all
/// ranks can run them, and go to the first end of a pass after it. Sorting by time keeps every
/// dependency, so the result is valid for any base. Then T, G and W, for which nothing but the
/// optimizer waits, are placed anew where ranks would idle. Of all placements the one with the
/// smallest makespan under `costs` is returned.
///
/// Sharded layers take overlapped pairs apart: passes come between their members.
///
/// Throws ScheduleError if the base is invalid; UsageError if it has vocabulary passes already, or
/// if no placement keeps a limit that is given.
[[nodiscard]] Schedule insert_vocabulary(const Schedule& base, const InsertOptions& options);

}  // namespace vocabpipe
