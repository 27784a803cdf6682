// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/order_cache.hpp"
#include "vocabpipe/microbatch_lengths.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Orders a candidate's passes for the costs that the options imply. Throws UsageError if the
/// family cannot order them.
[[nodiscard]] Schedule order_passes(const PlanOptions& options, const Candidate& candidate);

/// The candidate's row if its passes run in this order. `evaluation` is simulation or pass_times.
[[nodiscard]] PlanRow evaluate(const PlanOptions& options, const Candidate& candidate,
                               const Schedule& order, Evaluation evaluation);

/// With its passes ordered for its costs.
[[nodiscard]] PlanRow evaluate(const PlanOptions& options, const Candidate& candidate,
                               Evaluation evaluation, OrderCache& orders);

/// A length below PlanOptions::seq_length, and what microbatches with it take.
struct ShorterLength {
    int64_t seq_length = 0;
    LengthShares shares;
};

/// PlanRow::step_ns of the candidate if its microbatches have these lengths (0: the longest, k:
/// shorter[k - 1]), in the order of order_microbatches().
[[nodiscard]] int64_t step_ns_of_lengths(const PlanOptions& options, const Candidate& candidate,
                                         const std::vector<ShorterLength>& shorter,
                                         std::vector<int> lengths, Evaluation evaluation);

/// The candidate's step as simulation evaluates it, for pictures, with the memory of every rank.
[[nodiscard]] RecordedRun record_step(const PlanOptions& options, const Candidate& candidate);

/// Passes of one pipeline of a candidate; the time to simulate it is proportional to them.
[[nodiscard]] int64_t count_passes(const Candidate& candidate);

}  // namespace vocabpipe
