// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/preference_step.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstddef>
#include <optional>
#include <span>

namespace vocabpipe {

/// Takes the steps of a run's plan: where the loss compares pairs, forward first.
///
///     PlannedStep step(rank, plan);
///     step.begin(batch, plan.index_of(microbatches));
///     step.train(learning_rate);
///     step.report().loss
class PlannedStep {
public:
    /// `rank`, with the programs of `plan`, must outlive it.
    PlannedStep(TrainedRank& rank, const TrainingPlan& plan);

    /// Prepares the plan's step `index` over a batch, which must stay until train(). Collective.
    void begin(const StepBatch& batch, size_t index);
    /// What begin() made of the batch.
    [[nodiscard]] std::span<const Microbatch> microbatches() const;
    /// As TrainedRank::train_step().
    void train(double learning_rate, double stop_request = 0);
    /// As TrainedRank::report(), with the loss of pairs if it compares them.
    [[nodiscard]] StepResult report() const;
    /// Null: the loss does not compare pairs.
    [[nodiscard]] const PreferenceMeans* pairs() const;

private:
    TrainedRank& rank_;
    const TrainingPlan& plan_;
    std::optional<PreferenceStep> preference_;
    const StepBatch* batch_ = nullptr;
    size_t index_ = 0;
};

}  // namespace vocabpipe
