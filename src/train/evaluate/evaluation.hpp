// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/choice_set.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/evaluate/multiple_choice.hpp"
#include "src/train/evaluate/validation_loss.hpp"
#include "src/train/log/metrics_file.hpp"
#include "src/train/options/train_options.hpp"
#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// Data to evaluate on, opened and checked.
struct EvaluationData {
    std::unique_ptr<const SampleSource> valid;  ///< null: no validation loss
    std::optional<ChoiceSet> choices;           ///< none: no multiple choice

    /// What must be the same on every rank, besides the run's data: one line, or none.
    [[nodiscard]] std::vector<std::string> fingerprint() const;
};

/// Opens the data that the options ask for; `data` are the run's, null if it has none. Validation
/// data are read unshuffled. InputFileError, UsageError.
[[nodiscard]] EvaluationData open_evaluation_data(const TrainOptions& options,
                                                  const TrainingData* data);

/// Result of one evaluation; the same on every rank.
struct EvaluationResult {
    int64_t step = 0;  ///< training step after which it ran; 0: before the first
    std::optional<ValidationLoss> validation;
    std::optional<ChoiceAccuracy> choices;
    double seconds = 0;

    /// The log line, in Megatron's words, without a line break.
    [[nodiscard]] std::string line() const;
    [[nodiscard]] EvaluationMetrics metrics() const;
};

/// The evaluations of a run. All use the same samples, so that results are comparable.
class Evaluation {
public:
    /// Plan and rank must outlive it. `abandon`: see SequenceLosses.
    Evaluation(const TrainingPlan& plan, TrainedRank& rank, EvaluationData data,
               std::function<bool()> abandon = {});

    /// True every --eval-interval steps, and after the last one.
    [[nodiscard]] bool due(int64_t step) const;
    /// Evaluates the current weights. Errors as SequenceLosses::of(). Collective.
    [[nodiscard]] EvaluationResult run(int64_t step);

private:
    const TrainOptions& options_;
    EvaluationData data_;
    SequenceLosses losses_;
};

}  // namespace vocabpipe
