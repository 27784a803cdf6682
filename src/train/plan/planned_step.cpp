// SPDX-License-Identifier: Apache-2.0
#include "src/train/plan/planned_step.hpp"

namespace vocabpipe {

PlannedStep::PlannedStep(TrainedRank& rank, const TrainingPlan& plan) : rank_(rank), plan_(plan) {
    const TrainingLoss& loss = plan.options().loss;
    if (loss.compares_pairs()) preference_.emplace(rank, loss.dpo_beta);
}

void PlannedStep::begin(const StepBatch& batch, size_t index) {
    batch_ = &batch;
    index_ = index;
    if (preference_) preference_->run(batch, plan_.forward_index(index));
}

std::span<const Microbatch> PlannedStep::microbatches() const {
    return preference_ ? preference_->microbatches() : batch_->microbatches();
}

void PlannedStep::train(double learning_rate, double stop_request) {
    rank_.train_step(microbatches(), batch_->counted_tokens(), learning_rate,
                     {.plan = index_, .stop_request = stop_request});
}

StepResult PlannedStep::report() const {
    StepResult result = rank_.report();
    if (preference_) result.loss = preference_->means().loss;
    return result;
}

const PreferenceMeans* PlannedStep::pairs() const {
    return preference_ ? &preference_->means() : nullptr;
}

}  // namespace vocabpipe
