// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/recorded_run.hpp"
#include "vocabpipe/schedule.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace vocabpipe::imported {

/// The passes of a recorded step in their order, and what they took.
struct StepTimes {
    Schedule
        schedule;  ///< the passes with a microbatch; shard maps of 0 rows if none is S, T, E, G
    std::vector<std::vector<int64_t>> pass_ns;  ///< [rank][position]
    /// [rank][position] How much longer than message_ns (or collective_ns) the message took that a
    /// pass waited for, as far as it waited: 0 where the rank was still busy.
    std::vector<std::vector<int64_t>> late_ns;
    /// [rank] Mean over its passes of the time after the last moment that a pass needed, and before
    /// its begin: launching, messages that were not recorded, other work of the host.
    std::vector<int64_t> overhead_ns;
    int64_t message_ns = 0;  ///< median, from the moment both ends are ready until it has arrived
    int64_t collective_ns = 0;  ///< the same of collectives; message_ns where none was recorded
    int64_t measured_ns = 0;    ///< first begin to last end of the passes

    /// Means over microbatches of passes with what they were late and the overhead, for simulate();
    /// latencies as measured.
    [[nodiscard]] TableCosts mean_costs() const;
};

/// Throws UsageError for runs of a mesh with several slices, without passes, and of passes that are
/// no step of a pipeline.
[[nodiscard]] StepTimes step_times(const RecordedRun& run);

/// Replays of a step in the simulator. A step is as long as the makespan of its passes.
/// With the time that every single pass took and was late, and its rank's mean overhead.
[[nodiscard]] int64_t replay_own_ns(const StepTimes& times);
/// The same with other times of the passes, [rank][position].
[[nodiscard]] int64_t replay_own_ns(const StepTimes& times,
                                    const std::vector<std::vector<int64_t>>& pass_ns);
/// The schedule under any costs; without vocabulary passes of its own it gets some that take what
/// the costs say.
[[nodiscard]] int64_t replay_ns(const Schedule& of_passes, const CostModel& costs);

}  // namespace vocabpipe::imported
