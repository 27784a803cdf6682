// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/plan/training_plan.hpp"

#include <string>

namespace vocabpipe {

/// Prints the plan as a table, one line per rank.
void print_plan(const TrainingPlan& plan);

/// A warning that names the first stage whose tensor ranks (expert ranks, if they are more) are on
/// several hosts, and the number of further ones: every layer exchanges over the network there.
/// Empty if there is none.
[[nodiscard]] std::string teams_across_hosts(const TrainingPlan& plan);

/// A warning if a host's ranks have more threads than cores were left to them, by mpirun or another
/// launcher. Else empty.
[[nodiscard]] std::string ranks_that_share_cores(const TrainingPlan& plan);

}  // namespace vocabpipe
