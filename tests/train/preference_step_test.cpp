// SPDX-License-Identifier: Apache-2.0
// Direct preference optimization in whole steps: against pairs of a model in double, wherever the
// two answers of a pair are.
#include "vocabpipe/preference_step.hpp"

#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/token_problem.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/policy_loss.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kAnswerIds = 19;
constexpr int64_t kAnswerLength = 6;
constexpr int64_t kAnswers = 8;  ///< of a step
constexpr double kBeta = 0.4;

/// Answers behind a question of one or two tokens, with weights of labels from 0 to 2, and
/// log-probabilities of a reference.
class Answers final : public SampleSource {
public:
    explicit Answers(int64_t columns = 1) : columns_(columns) {}
    [[nodiscard]] int64_t seq_length() const override { return kAnswerLength; }
    [[nodiscard]] int64_t samples_per_epoch() const override { return kAnswers; }
    [[nodiscard]] SampleForm form() const override {
        return {.weighs_labels = true, .columns = columns_};
    }

private:
    void fill(int64_t index, Sample& out) const override {
        std::mt19937 random(static_cast<unsigned>(index + 1));
        out.columns.assign(static_cast<size_t>(columns_ * kAnswerLength), 0);
        for (size_t n = 0; n < kAnswerLength; ++n) {
            out.tokens[n] = static_cast<int32_t>(random() % kAnswerIds);
            const bool asked = n < 1 + static_cast<size_t>(index % 2);
            out.labels[n] = asked ? kIgnoredLabel : static_cast<int32_t>(random() % kAnswerIds);
            out.loss_weights[n] = 0.5F * static_cast<float>(random() % 5);
            if (columns_ > 0) out.columns[n] = -2.9F + 0.3F * static_cast<float>(random() % 7) / 7;
        }
    }

    int64_t columns_;
};

ModelConfig small_model() {
    return small_family("llama", 4, kAnswerLength, kAnswerIds, false);
}

/// The step in double: what pairs have, and gradients.
struct ExpectedStep {
    PreferenceMeans means;
    Tensors gradients;
};
ExpectedStep expected_step(uint64_t seed) {
    const ModelConfig config = small_model();
    const Answers answers;
    Batch batch{.sequences = 1, .seq_length = kAnswerLength};
    std::vector<Sample> samples;
    for (int64_t i = 0; i < kAnswers; ++i) {
        answers.sample(i, samples.emplace_back(kAnswerLength));
        batch.tokens.push_back(samples.back().tokens);
        batch.labels.push_back(samples.back().labels);
        batch.loss_gradient.emplace_back(kAnswerLength, 0.0F);
    }
    const Tensors weights = initial_weights(config, seed);
    const auto log_p = log_probabilities(config, batch, weights);
    std::vector<double> rewards;
    for (size_t i = 0; i < kAnswers; ++i) {
        rewards.push_back(0);
        for (size_t n = 0; n < kAnswerLength; ++n) {
            const int32_t label = samples[i].labels[n];
            if (label < 0) continue;
            rewards.back() += double{samples[i].loss_weights[n]} *
                              (log_p[i * kAnswerLength + n][static_cast<size_t>(label)] -
                               double{samples[i].columns[n]});
        }
    }
    ExpectedStep expected;
    constexpr double kPairs = kAnswers / 2;
    for (size_t i = 0; i < kAnswers; i += 2) {
        const double d = kBeta * (rewards[i] - rewards[i + 1]);
        expected.means.loss += std::log(1 + std::exp(-d)) / kPairs;
        expected.means.accuracy += d > 0 ? 1 / kPairs : 0;
        expected.means.chosen_reward += kBeta * rewards[i] / kPairs;
        expected.means.rejected_reward += kBeta * rewards[i + 1] / kPairs;
        const double slope = kBeta / (1 + std::exp(d)) / kPairs;  // by -log p of the better answer
        for (size_t n = 0; n < kAnswerLength; ++n) {
            batch.loss_gradient[i][n] =
                static_cast<float>(slope * double{samples[i].loss_weights[n]});
            batch.loss_gradient[i + 1][n] =
                static_cast<float>(-slope * double{samples[i + 1].loss_weights[n]});
        }
    }
    expected.gradients = fp64_step(config, batch, weights).gradients;
    return expected;
}

TrainingSetup setup_of(const Mesh& mesh, VocabMode mode, int64_t sequences,
                       const SampleSource& answers) {
    TrainingSetup setup =
        setup_on_mesh("1f1b", mode, mesh, kAnswerIds, [](int) { return small_model(); });
    setup.steps = 1;
    setup.sequences = sequences;
    setup.microbatches = static_cast<int>(kAnswers / sequences / mesh.data);
    setup.samples = &answers;
    setup.loss = std::make_shared<PolicyLoss>();
    setup.preference_beta = kBeta;
    return setup;
}

void expect_step(const Training& found, const ExpectedStep& expected) {
    ASSERT_EQ(found.pairs.size(), 1U);
    const PreferenceMeans& means = found.pairs.front();
    EXPECT_NEAR(means.loss, expected.means.loss, 1e-6);
    EXPECT_EQ(means.accuracy, expected.means.accuracy);
    EXPECT_NEAR(means.chosen_reward, expected.means.chosen_reward, 1e-5);
    EXPECT_NEAR(means.rejected_reward, expected.means.rejected_reward, 1e-5);
    const WorstError worst = worst_error({.by_name = found.gradients}, expected.gradients);
    EXPECT_LT(worst.value, 3e-5) << worst.name;
}

TEST(PreferenceStep, HasTheLossAndTheGradientOfPairsInFp64) {
    const Answers answers;
    const ExpectedStep expected = expected_step(7);
    ASSERT_GT(expected.means.accuracy, 0);
    ASSERT_LT(expected.means.accuracy, 1);
    for (const VocabMode mode : kEveryVocabMode) {
        SCOPED_TRACE(to_string(mode));
        expect_step(train_on_threads(setup_of({.pipeline = 2}, mode, 2, answers)), expected);
    }
}

TEST(PreferenceStep, FindsTheAnswersOfAPairInOtherMicrobatchesReplicasAndContextRanks) {
    const Answers answers;
    const ExpectedStep expected = expected_step(7);
    for (const auto& [mesh, sequences] :
         {std::pair{Mesh{.pipeline = 1}, 1}, std::pair{Mesh{.pipeline = 1, .data = 2}, 1},
          std::pair{Mesh{.pipeline = 2, .data = 2}, 1},
          std::pair{Mesh{.pipeline = 1, .data = 4}, 2},
          std::pair{Mesh{.pipeline = 1, .context = 3}, 2}}) {
        SCOPED_TRACE(std::to_string(mesh.pipeline) + " " + std::to_string(mesh.data) + " " +
                     std::to_string(mesh.context));
        expect_step(train_on_threads(setup_of(mesh, VocabMode::one_barrier, sequences, answers)),
                    expected);
    }
    // Pairs stay pairs where samples are arranged anew.
    TrainingSetup setup = setup_of({.pipeline = 1, .data = 2}, VocabMode::none, 1, answers);
    setup.arrange = [](std::span<const int64_t> lengths, int64_t) {
        std::vector<int> places(lengths.size());
        std::iota(places.rbegin(), places.rend(), 0);
        std::swap(places[1], places[5]);
        return places;
    };
    expect_step(train_on_threads(setup), expected);
}

TEST(PreferenceStep, RefusesWhatIsNoPair) {
    const auto refusal = [](const TrainingSetup& setup) -> std::string {
        try {
            (void)train_on_threads(setup);
        } catch (const std::exception& error) {
            return error.what();
        }
        return "nothing was refused";
    };
    const Answers answers;
    TrainingSetup setup = setup_of({.pipeline = 1}, VocabMode::none, 1, answers);
    setup.microbatches = 3;
    EXPECT_THAT(refusal(setup), HasSubstr("a step has 3 samples, but they are pairs"));
    const Answers without(0);
    EXPECT_THAT(refusal(setup_of({.pipeline = 1}, VocabMode::none, 2, without)),
                HasSubstr("microbatch 0 has 0 numbers for 12 tokens"));
}

}  // namespace
}  // namespace vocabpipe::testing
