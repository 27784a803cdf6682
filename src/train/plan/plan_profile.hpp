// SPDX-License-Identifier: Apache-2.0
// Profiles of runs: writing one of a measured plan, and reading the costs of another.
#pragma once

#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/profile.hpp"

#include <vector>

namespace vocabpipe {

/// The costs in --schedule-costs FILE. UsageError unless they were measured with the same split as
/// `placed` (place_step()); InputFileError.
[[nodiscard]] TableCosts costs_of_file(const TrainOptions& options, const StepPlan& placed);

/// A profile of the plan's model and split with measured costs; `derived`: costs that no pass
/// showed.
[[nodiscard]] Profile profile_of(const TrainingPlan& plan, const TableCosts& costs,
                                 std::vector<Op> derived, std::vector<LinkSample> links);

}  // namespace vocabpipe
