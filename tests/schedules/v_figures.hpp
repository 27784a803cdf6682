// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"

#include <string>
#include <string_view>

// What the tests of the families on the V placement share.

namespace vocabpipe::testing {

/// The transformer passes of a family. Throws ScheduleError if they are no valid schedule.
[[nodiscard]] Schedule v_schedule(std::string_view family, const ScheduleOptions& options);

/// F = I = W = 1, B = 2, no latency: the slots of the patterns.
[[nodiscard]] PassCosts unit_costs();
[[nodiscard]] PassCosts v_costs(int64_t forward, int64_t input_gradient, int64_t weight_gradient,
                                int64_t latency);

[[nodiscard]] int highest_peak(const Schedule& schedule);
[[nodiscard]] int lowest_peak(const Schedule& schedule);

/// Expects makespan, largest span and every rank's peak to be at most those of the oracle cases of
/// this schedule, under all costs of theirs; returns how many figures were compared.
[[nodiscard]] int expect_oracles_met(const std::string& schedule, std::string_view family);

}  // namespace vocabpipe::testing
