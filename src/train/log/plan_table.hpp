// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/run/training_plan.hpp"

#include <string>

namespace vocabpipe {

/// The plan as a table, a line per rank.
void print_plan(const TrainingPlan& plan);

/// Of the first stage whose tensor ranks, or expert ranks if they are more, are on several hosts,
/// and how many more there are: what they exchange in every layer is sent through the network.
/// Empty if there is none.
[[nodiscard]] std::string teams_across_hosts(const TrainingPlan& plan);

}  // namespace vocabpipe
