// SPDX-License-Identifier: Apache-2.0
// Profiles of runs: what one measured, and what another is built from.
#pragma once

#include "src/train/run/training_plan.hpp"
#include "vocabpipe/profile.hpp"

#include <vector>

namespace vocabpipe {

/// Of --schedule-costs FILE, which must have measured the very split of `placed` (place_step()).
/// UsageError otherwise, InputFileError.
[[nodiscard]] TableCosts costs_of_file(const TrainOptions& options, const StepPlan& placed);

/// Of the plan's model and split, with what was measured; `derived`: costs that no pass showed.
[[nodiscard]] Profile profile_of(const TrainingPlan& plan, const TableCosts& costs,
                                 std::vector<Op> derived, std::vector<LinkSample> links);

}  // namespace vocabpipe
