// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/schedule/asked_step.hpp"
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
    SizedModel model;
    std::string costs_of;              ///< where the costs come from, for people
    std::vector<LengthCount> lengths;  ///< AskedStep::lengths
    bool default_mode = false;         ///< no flag and no file says what happens to the vocabulary

    /// The simulated world: one pipeline, or with tensor ranks if the profile has them.
    [[nodiscard]] Mesh mesh() const { return sizes.mesh(schedule.ranks); }
};

/// Lengths of the microbatches in their order, as "2048 x 2, 8192 x 5"; empty: all have one.
[[nodiscard]] std::string lengths_text(const ScheduledStep& step);

/// What a command prints first: title, costs, and why the vocabulary mode is what it is if nobody
/// chose it. Lines of at most 80 columns, with a newline at the end.
[[nodiscard]] std::string heading(const ScheduledStep& step);

/// Limit for schedules that are lowered, at some 800 bytes and 4 us per pass; checked before
/// anything is made. make_schedule() allows more, for schedules that are only ordered and shown.
inline constexpr int64_t kMostPassesToLower = 4'000'000;

/// Prices the step and orders its passes. Throws as CostSource and make_order().
[[nodiscard]] ScheduledStep make_step(AskedStep asked);

/// A step and its simulation.
struct SimulatedStep : SimulatedPrograms {
    ScheduledStep step;
};
/// From flags to the simulation. Throws as asked_step() and make_step().
[[nodiscard]] SimulatedStep simulate_step(const std::string& schedule, const ScheduleFlags& flags);

}  // namespace vocabpipe::tool
