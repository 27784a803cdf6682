// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/model_on_device.hpp"
#include "src/plan/order_cache.hpp"
#include "src/plan/step_model.hpp"
#include "vocabpipe/lowered.hpp"
#include "vocabpipe/microbatch_lengths.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/recorded_run.hpp"
#include "vocabpipe/simulate.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A length below PlanOptions::seq_length, and what microbatches with it take.
struct ShorterLength {
    int64_t seq_length = 0;
    LengthShares shares;
};

/// Evaluates candidates of a plan, whose model and device it works out once. May be used from
/// several threads.
class Evaluator {
public:
    /// The options must outlive it.
    explicit Evaluator(const PlanOptions& options);

    /// What all candidates compute, with the rates of the device.
    [[nodiscard]] const ModelOnDevice& model() const { return model_; }
    /// Orders a candidate's passes for the costs that the options imply. Throws UsageError if the
    /// family cannot order them.
    [[nodiscard]] Schedule order(const Candidate& candidate) const;
    /// The candidate's row if its passes run in this order. `evaluation` is simulation or
    /// pass_times.
    [[nodiscard]] PlanRow row(const Candidate& candidate, const Schedule& order,
                              Evaluation evaluation) const;
    /// With its passes ordered for its costs.
    [[nodiscard]] PlanRow row(const Candidate& candidate, Evaluation evaluation,
                              OrderCache& orders) const;
    /// PlanRow::step_ns of the candidate if its microbatches have these lengths (0: the longest, k:
    /// shorter[k - 1]), in the order of order_microbatches().
    [[nodiscard]] int64_t step_ns_of_lengths(const Candidate& candidate,
                                             const std::vector<ShorterLength>& shorter,
                                             std::vector<int> lengths, Evaluation evaluation) const;
    /// The candidate's step as simulation evaluates it, for pictures, with the memory of every
    /// rank.
    [[nodiscard]] RecordedRun record(const Candidate& candidate) const;

private:
    struct Outcome;

    [[nodiscard]] StepModel model_of(const Candidate& candidate) const;
    [[nodiscard]] Lowered lowered(const Schedule& schedule, const StepModel& step,
                                  const ZeroOptions& zero) const;
    [[nodiscard]] Outcome simulated(const Schedule& schedule, const StepModel& step,
                                    const ZeroOptions& zero) const;
    [[nodiscard]] static Outcome timed(const Schedule& schedule, const StepModel& step,
                                       const ZeroOptions& zero);
    [[nodiscard]] Outcome outcome_of(const StepModel& step, const Schedule& order,
                                     Evaluation evaluation, const ZeroOptions& zero) const;
    [[nodiscard]] PlanRow row_with(const Candidate& candidate, const StepModel& step,
                                   const Schedule& order, Evaluation evaluation) const;
    [[nodiscard]] PlanRow row_of(const Candidate& candidate, const StepModel& step,
                                 const Schedule& order, Evaluation evaluation) const;

    const PlanOptions& options_;
    const ModelOnDevice model_;
    const SimulateOptions simulate_;
    const double flops_per_token_;  ///< of a step; 0 with a profile
};

/// Passes of one pipeline of a candidate; the time to simulate it is proportional to them.
[[nodiscard]] int64_t count_passes(const Candidate& candidate);

}  // namespace vocabpipe
