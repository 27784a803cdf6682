// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/schedule/schedule_flags.hpp"
#include "src/tool/schedule/simulated_programs.hpp"
#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/memory_over_time.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// A schedule with all inputs of lowering and simulation.
struct ScheduledStep {
    std::string title;  ///< "1f1b one_barrier, 4 ranks, 8 microbatches"
    Schedule schedule;
    StepSizes sizes;
    TableCosts costs;
    int ticks_per_unit = 0;                   ///< if costs are figures; 0: costs are nanoseconds
    std::vector<PersistentBytes> persistent;  ///< [rank of the world]; empty: unknown
    SimulateOptions options;
    std::string memory_of;      ///< what `sizes` describe, for people
    std::string costs_of;       ///< where the costs come from, for people
    std::string lengths;        ///< of the microbatches in their order; empty: all have one
    bool default_mode = false;  ///< no flag and no file says what happens to the vocabulary

    /// The simulated world: one pipeline, or with tensor ranks if the profile has them.
    [[nodiscard]] Mesh mesh() const { return sizes.mesh(schedule.ranks); }
};

/// What a command prints first: title, costs, and why the vocabulary mode is what it is if nobody
/// chose it. Lines of at most 80 columns, with a newline at the end.
[[nodiscard]] std::string heading(const ScheduledStep& step);

/// Limit for schedules that are lowered, at some 800 bytes and 4 us per pass; checked before
/// anything is made. make_schedule() allows more, for schedules that are only ordered and shown.
inline constexpr int64_t kMostPassesToLower = 4'000'000;

/// The built-in schedule of that name, or one from a .csv or .json file, of at most about
/// `most_passes` (0: make_schedule()'s limit). UsageError, InputFileError.
[[nodiscard]] ScheduledStep make_step(const std::string& schedule, const ScheduleFlags& flags,
                                      int64_t most_passes = 0);

/// A step and its simulation.
struct SimulatedStep : SimulatedPrograms {
    ScheduledStep step;
};
[[nodiscard]] SimulatedStep simulate_step(const std::string& schedule, const ScheduleFlags& flags);

}  // namespace vocabpipe::tool
