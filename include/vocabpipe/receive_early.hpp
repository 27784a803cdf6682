// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/simulate.hpp"

#include <string_view>
#include <vector>

namespace vocabpipe {

/// What --receive-ahead says: passes, or 0 for auto, which is lower_receiving_early(). Throws
/// UsageError for anything but "auto" and whole numbers from 1 to 2^30.
[[nodiscard]] int receive_ahead_from(std::string_view text);

/// What lower_step() made.
struct EarlyReceives {
    Lowered lowered;        ///< programs of the world
    int receive_ahead = 1;  ///< LowerOptions::receive_ahead that was taken
    int pieces = 1;         ///< LowerOptions::pieces that was taken; of lower_step()
};

/// lower_world() with the receives as early as it pays and memory allows: with 1 pass ahead, as
/// soon as sent, and steps between where that is faster under `costs`. The shortest step is taken
/// among those in which no rank's arena is larger than the largest one was with 1, but for a
/// hundredth; of equal ones the one that receives latest. So the step is never longer than with 1,
/// in simulation. LowerOptions::receive_ahead is not read. Throws as lower_world().
[[nodiscard]] EarlyReceives lower_receiving_early(const Schedule& schedule, const StepSizes& sizes,
                                                  const CostModel& costs,
                                                  const LowerOptions& options = {},
                                                  const SimulateOptions& simulation = {});

/// lower_world(), or lower_receiving_early() where LowerOptions::receive_ahead is 0;
/// lower_by_fastest_pieces() where LowerOptions::pieces is 0.
[[nodiscard]] EarlyReceives lower_step(const Schedule& schedule, const StepSizes& sizes,
                                       const CostModel& costs, const LowerOptions& options,
                                       const SimulateOptions& simulation = {});

}  // namespace vocabpipe
