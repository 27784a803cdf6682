// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

namespace vocabpipe {

/// The order of a candidate's passes, for the costs that the options imply. Throws UsageError if
/// the family cannot.
[[nodiscard]] Schedule order_passes(const PlanOptions& options, const Candidate& candidate);

/// The candidate's row if its passes run in this order. `evaluation` is simulation or pass_times.
[[nodiscard]] PlanRow evaluate(const PlanOptions& options, const Candidate& candidate,
                               const Schedule& order, Evaluation evaluation);

/// Passes of all ranks of a candidate: what simulating it costs time for.
[[nodiscard]] int64_t count_passes(const Candidate& candidate);

}  // namespace vocabpipe
