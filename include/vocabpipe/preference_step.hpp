// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace vocabpipe {

/// What the pairs of a step have: means over them, of all replicas.
struct PreferenceMeans {
    double loss = 0;             ///< PreferenceLoss::loss
    double accuracy = 0;         ///< share of pairs whose better answer has the larger reward
    double chosen_reward = 0;    ///< beta (log p - log p of the reference) of the better answer
    double rejected_reward = 0;  ///< of the worse one

    /// How far the rewards are apart; TRL's rewards/margins.
    [[nodiscard]] double margin() const { return chosen_reward - rejected_reward; }
};

/// The first half of a step of direct preference optimization (Rafailov et al. 2023): a
/// forward-only plan finds what every answer's log-probability is, and the training step has the
/// gradient of the mean loss of all pairs, by a PolicyLoss without a divergence.
///
///     PreferenceStep pairs(rank, 0.1);
///     pairs.run(batch, forward);
///     rank.train_step(pairs.microbatches(), batch.counted_tokens(), learning_rate);
///     pairs.means().loss
///
/// Samples 2 i and 2 i + 1 of the batch are the better and the worse answer of a pair; a label that
/// is ignored belongs to the question. Their one column is the reference's log-probability of every
/// label. The plans of `rank` store the record logprob.
class PreferenceStep {
public:
    /// `rank` must outlive it.
    PreferenceStep(TrainedRank& rank, double beta) : rank_(rank), beta_(beta) {}

    /// Runs the plan `forward`, which is forward-only, over the batch. Collective. UsageError for
    /// an odd number of samples, or samples without the column.
    void run(const StepBatch& batch, size_t forward);
    /// The batch with the columns of a PolicyLoss, until the next run() or change of the batch.
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    /// The batch's means, the same on every rank.
    [[nodiscard]] const PreferenceMeans& means() const { return means_; }

private:
    /// [sample of the step] Sum over its labels of weight times log p - log p of the reference.
    [[nodiscard]] std::vector<double> rewards(const StepBatch& batch,
                                              std::span<const float> logprobs);

    TrainedRank& rank_;
    double beta_;
    std::vector<std::vector<float>> columns_;  ///< [microbatch] (2, N)
    std::vector<Microbatch> microbatches_;
    PreferenceMeans means_;
};

}  // namespace vocabpipe
