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
    /// [rank][position] How much later the input of a pass came than the fastest message (or
    /// collective) would have brought it, as far as the rank waited for it: 0 where it was busy.
    std::vector<std::vector<int64_t>> late_ns;
    /// [rank][position] The time between the last moment that a pass needed and its begin:
    /// launching, waiting for sends, other work of the host.
    std::vector<std::vector<int64_t>> gap_ns;
    int64_t message_ns = 0;     ///< of the fastest, from sending until it has arrived
    int64_t collective_ns = 0;  ///< the same of collectives; message_ns where none was recorded
    int64_t measured_ns = 0;    ///< first begin to last end of the passes

    /// Means over microbatches of a pass, its gap and what it was late, for simulate(); latencies
    /// as measured.
    [[nodiscard]] TableCosts mean_costs() const;
};

/// Throws UsageError for runs of a mesh with several slices, without passes, and of passes that are
/// no step of a pipeline.
[[nodiscard]] StepTimes step_times(const RecordedRun& run);

/// Replays of a step in the simulator. A step is as long as the makespan of its passes.
/// With the time that every single pass took and was late, and its gap.
[[nodiscard]] int64_t replay_own_ns(const StepTimes& times);
/// The schedule under any costs; without vocabulary passes of its own it gets some that take what
/// the costs say.
[[nodiscard]] int64_t replay_ns(const Schedule& of_passes, const CostModel& costs);

}  // namespace vocabpipe::imported
