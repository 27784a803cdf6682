// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/run/training_plan.hpp"

namespace vocabpipe {

/// The plan as a table, a line per rank.
void print_plan(const TrainingPlan& plan);

}  // namespace vocabpipe
