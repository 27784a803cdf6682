// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

namespace vocabpipe {

/// One row of the plan. `evaluation` is simulation or pass_times. Throws UsageError if the schedule
/// is not possible.
[[nodiscard]] PlanRow evaluate(const PlanOptions& options, const Candidate& candidate,
                               int microbatches, Evaluation evaluation);

/// Passes of a candidate's schedule: what evaluating it costs time for.
[[nodiscard]] int64_t count_passes(const PlanOptions& options, const Candidate& candidate,
                                   int microbatches);

}  // namespace vocabpipe
