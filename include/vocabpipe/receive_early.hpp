// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/simulate.hpp"

#include <string_view>
#include <vector>

namespace vocabpipe {

/// Parses --receive-ahead: passes, or 0 for "auto" (lower_receiving_early()). Throws UsageError for
/// anything but "auto" and whole numbers from 1 to 2^30.
[[nodiscard]] int receive_ahead_from(std::string_view text);

/// Result of lower_step().
struct EarlyReceives {
    Lowered lowered;        ///< programs of the world
    int receive_ahead = 1;  ///< LowerOptions::receive_ahead that was used
    int pieces = 1;         ///< LowerOptions::pieces that lower_step() used
};

/// lower_world() with the receives as early as it pays and memory allows: tries 1 pass ahead, as
/// soon as sent, and values between if that is faster under `costs`. Takes the shortest step among
/// those whose largest arena exceeds the largest one with 1 by at most a hundredth; on ties the one
/// that receives latest. So the simulated step is never longer than with 1.
/// LowerOptions::receive_ahead is not read. Throws as lower_world().
[[nodiscard]] EarlyReceives lower_receiving_early(const Schedule& schedule, const StepSizes& sizes,
                                                  const CostModel& costs,
                                                  const LowerOptions& options = {},
                                                  const SimulateOptions& simulation = {});

/// lower_world(); lower_receiving_early() if LowerOptions::receive_ahead is 0;
/// lower_by_fastest_pieces() if LowerOptions::pieces is 0.
[[nodiscard]] EarlyReceives lower_step(const Schedule& schedule, const StepSizes& sizes,
                                       const CostModel& costs, const LowerOptions& options,
                                       const SimulateOptions& simulation = {});

}  // namespace vocabpipe
