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

/// Says so where threads of ranks on a host outnumber the cores that mpirun, or whoever started
/// them, left them. Else empty.
[[nodiscard]] std::string ranks_that_share_cores(const TrainingPlan& plan);

}  // namespace vocabpipe
