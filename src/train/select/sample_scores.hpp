// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/evaluate/sequence_batch.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The measure of how much a sample is worth to training.
enum class UtilityKind : uint8_t {
    margin,      ///< mean over the labels of 1 - (P1 - P2), the two likeliest tokens
    loss,        ///< mean cross-entropy of the labels, in nats
    perplexity,  ///< exp of that
};
[[nodiscard]] std::string_view to_string(UtilityKind kind);
/// UsageError for another name.
[[nodiscard]] UtilityKind utility_kind_from(std::string_view name);

/// A model's results for one sample.
struct SampleSums {
    double loss = 0;    ///< weighted sum over its labels, in nats
    double margin = 0;  ///< weighted sum of P1 - P2
    double weight = 0;  ///< of its labels; 0: there are none
};

/// In units of 2^-20, rounded to nearest, clamped to [0, largest int32]. A sample without
/// labels has 0.
[[nodiscard]] int32_t utility_of(UtilityKind kind, const SampleSums& sums);

/// Runs a plan with margins among StepWork::records, and with hidden_sums, over samples, step by
/// step:
///
///     SampleScores scores(rank, shape);
/// may throw on one rank only
///     scores.run();                       // collective
///     for each row of loss ranks: scores.sums(row), scores.hidden_mean(row)
class SampleScores {
public:
    /// The rank must outlive it, and have one plan.
    SampleScores(TrainedRank& rank, const EvaluationShape& shape);

    /// Loads the step that begins with microbatch `first`, of `count` samples in all.
    void load(int64_t first, int64_t count, const FillSequence& fill);
    /// Runs the step. Collective.
    void run();
    /// Whether this rank has the results of its replica.
    [[nodiscard]] bool has_results() const;
    [[nodiscard]] const EvaluationShape& shape() const { return shape_; }
    /// The sample in a row of the step that ran; none after the last one.
    [[nodiscard]] int64_t sample(int64_t row) const;
    [[nodiscard]] SampleSums sums(int64_t row) const;
    /// Mean of the output layer's input over all tokens of the sample, counted or not: (h).
    void hidden_mean(int64_t row, std::span<float> to) const;

private:
    TrainedRank& rank_;
    EvaluationShape shape_;
    int replica_;
    SequenceBatch batch_;
    int64_t first_ = 0;
    // Results of the last step, by row.
    std::vector<double> losses_;
    std::vector<float> records_, hidden_sums_;
};

}  // namespace vocabpipe
