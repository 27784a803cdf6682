// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/choice_set.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/evaluate/multiple_choice.hpp"
#include "src/train/evaluate/validation_loss.hpp"
#include "src/train/log/metrics_file.hpp"
#include "src/train/options/train_options.hpp"
#include "src/train/run/training_plan.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// What a model was evaluated on, opened and checked.
struct EvaluationData {
    std::unique_ptr<const SampleSource> valid;  ///< null: no validation loss
    DocumentMasks masks;                        ///< of valid
    std::optional<ChoiceSet> choices;           ///< none: no multiple choice

    /// What must be the same on every rank, besides the run's data: a line, or none.
    [[nodiscard]] std::vector<std::string> fingerprint() const;
};

/// Whether a run computes a validation loss: there are data for it.
[[nodiscard]] bool validates(const TrainOptions& options);
/// Whether it evaluates at all.
[[nodiscard]] bool evaluates(const TrainOptions& options);

/// Opens what the options ask for; `data` are the run's, null where it has none. Validation data
/// are read in their own order. InputFileError, UsageError.
[[nodiscard]] EvaluationData open_evaluation_data(const TrainOptions& options,
                                                  const TrainingData* data);

/// What one evaluation found; the same on every rank.
struct EvaluationResult {
    int64_t step = 0;  ///< of training, after which the weights were evaluated; 0: before any
    std::optional<ValidationLoss> validation;
    std::optional<ChoiceAccuracy> choices;
    double seconds = 0;

    /// The line for the log, in Megatron's words, without a break at the end.
    [[nodiscard]] std::string line() const;
    [[nodiscard]] EvaluationMetrics metrics() const;
};

/// The evaluations of a run: of the same samples every time, so that their results compare.
class Evaluation {
public:
    /// Plan and rank must outlive it. `abandon`: as of SequenceLosses.
    Evaluation(const TrainingPlan& plan, TrainedRank& rank, EvaluationData data,
               std::function<bool()> abandon = {});

    /// Every --eval-interval steps, and after the last one.
    [[nodiscard]] bool due(int64_t step) const;
    /// Of the weights as they are. Ends as SequenceLosses::of() does. Collective.
    [[nodiscard]] EvaluationResult run(int64_t step);

private:
    const TrainOptions& options_;
    EvaluationData data_;
    SequenceLosses losses_;
};

}  // namespace vocabpipe
