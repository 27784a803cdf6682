// SPDX-License-Identifier: Apache-2.0
// Built-in losses of records in whole steps: every loss on every schedule, mesh and number of
// microbatches against one rank. Their values and gradients in double are tested beside each.
#include "tests/model/model_cases.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/distillation_loss.hpp"
#include "vocabpipe/policy_loss.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kIds = 40;
constexpr int64_t kLongest = 8;
constexpr int64_t kListed = 5;

/// A loss, and what a caller gives it.
struct LossCase {
    std::string name;
    std::shared_ptr<const TokenLoss> loss;
    /// The numbers of one token, of every column.
    std::function<std::vector<float>(std::mt19937&)> numbers;
    int64_t columns = 0;
    std::optional<double> preference_beta = {};  ///< as in TrainingSetup
    friend void PrintTo(const LossCase& c, std::ostream* out) { *out << c.name; }
};

std::vector<float> policy_numbers(std::mt19937& random) {
    std::normal_distribution<float> normal;
    return {normal(random), -3.7F + 0.2F * normal(random), -3.7F + 0.2F * normal(random)};
}

/// Ids that differ, so that they are on several shards; the last entry is missing of some tokens.
std::vector<float> list_numbers(std::mt19937& random) {
    std::vector<float> numbers(2 * kListed);
    const auto first = static_cast<int64_t>(random() % kIds);
    for (int64_t i = 0; i < kListed; ++i) {
        const bool missing = i + 1 == kListed && first % 3 == 0;
        numbers[static_cast<size_t>(i)] =
            missing ? -INFINITY : -0.7F * static_cast<float>(i + 1) - 0.1F;
        numbers[static_cast<size_t>(kListed + i)] =
            missing ? -1.0F : static_cast<float>((first + 9 * i) % kIds);
    }
    return numbers;
}

std::vector<LossCase> losses() {
    const auto policy = [](float entropy) {
        return std::make_shared<PolicyLoss>(
            PolicyLossOptions{.kl_coefficient = 0.04F, .entropy_coefficient = entropy});
    };
    const auto distillation = std::make_shared<DistillationLoss>(
        DistillationOptions{.top_k = kListed, .kl_share = 0.75F});
    const auto reference_number = [](std::mt19937& random) {
        return std::vector<float>{policy_numbers(random).back()};
    };
    return {{"policy", policy(0), policy_numbers, 3},
            {"policy_with_entropy", policy(0.1F), policy_numbers, 3},
            {"distillation", distillation, list_numbers, 2 * kListed},
            {"dpo", std::make_shared<PolicyLoss>(), reference_number, 1, 0.3}};
}

/// Sequences with the columns of a loss, of these lengths in turn; `padded`: each is as long as
/// the longest, and what follows its text has no labels.
class LossSamples final : public SampleSource {
public:
    explicit LossSamples(const LossCase& of, std::vector<int64_t> lengths = {kLongest},
                         bool padded = false)
        : of_(of), lengths_(std::move(lengths)), padded_(padded) {}
    [[nodiscard]] int64_t seq_length() const override { return kLongest; }
    [[nodiscard]] int64_t length(int64_t index) const override {
        return padded_ ? kLongest : text_length(index);
    }
    [[nodiscard]] int64_t samples_per_epoch() const override { return 64; }
    [[nodiscard]] SampleForm form() const override {
        return {.weighs_labels = true, .columns = of_.columns};
    }

private:
    void fill(int64_t index, Sample& out) const override {
        std::mt19937 random(static_cast<unsigned>(index));
        const size_t length = out.tokens.size();
        out.columns.assign(static_cast<size_t>(of_.columns) * length, 0);
        for (size_t n = 0; n < static_cast<size_t>(text_length(index)); ++n) {
            out.tokens[n] = static_cast<int32_t>(random() % kIds);
            out.labels[n] = n < 2 ? kIgnoredLabel : static_cast<int32_t>(random() % kIds);
            const std::vector<float> numbers = of_.numbers(random);
            for (size_t c = 0; c < numbers.size(); ++c) out.columns[c * length + n] = numbers[c];
        }
    }

    [[nodiscard]] int64_t text_length(int64_t index) const {
        return lengths_[static_cast<size_t>(index) % lengths_.size()];
    }

    const LossCase& of_;
    std::vector<int64_t> lengths_;
    bool padded_;
};

class EveryTokenLoss : public ::testing::TestWithParam<LossCase> {
protected:
    struct Run {
        Mesh mesh = {};
        VocabMode mode = VocabMode::two_barriers;
        std::string family = "1f1b";
        int microbatches = 4;  ///< of a replica
        int layers = 3;
        std::vector<int64_t> shorter = {};
    };
    [[nodiscard]] Training train(const Run& run, const SampleSource& samples) const {
        TrainingSetup setup = setup_on_mesh(run.family, run.mode, run.mesh, kIds, [&](int) {
            ModelConfig config = small_family("llama", run.layers, kLongest, kIds, false);
            config.ffn_hidden_size = 32;
            config.num_query_groups = 2;
            return config;
        });
        setup.steps = 2;
        setup.samples = &samples;
        setup.microbatches = run.microbatches;
        setup.shorter_lengths = run.shorter;
        setup.loss = GetParam().loss;
        setup.preference_beta = GetParam().preference_beta;
        return train_on_threads(setup);
    }
    [[nodiscard]] Training train(const Run& run) const {
        return train(run, LossSamples(GetParam()));
    }
    /// Whether a mode has its gradient.
    [[nodiscard]] static bool has_gradient(VocabMode mode) {
        return mode != VocabMode::one_barrier || !GetParam().loss->has_entropy_slope();
    }

    /// Sums over shards and replicas have another order.
    static void expect_near(const Training& found, const Training& expected) {
        ASSERT_EQ(found.losses.size(), expected.losses.size());
        for (size_t i = 0; i < found.losses.size(); ++i) {
            EXPECT_NEAR(found.losses[i], expected.losses[i], 2e-5);
        }
        EXPECT_LT(largest_difference(expected.gradients, found.gradients), 2e-4);
    }
};

TEST_P(EveryTokenLoss, HasTheBitsOfOneRankWhereTheVocabularyIsWhole) {
    for (const int microbatches : {2, 5}) {
        const Training alone =
            train({.mode = VocabMode::none, .microbatches = microbatches, .layers = 8});
        for (const std::string family : {"1f1b", "gpipe", "zb-v", "v-half", "dualpipe-v"}) {
            SCOPED_TRACE(family + " " + std::to_string(microbatches));
            EXPECT_EQ(first_difference(alone, train({.mesh = {.pipeline = 2},
                                                     .mode = VocabMode::none,
                                                     .family = family,
                                                     .microbatches = microbatches,
                                                     .layers = 8})),
                      "");
        }
    }
    const Training alone = train({.mode = VocabMode::none, .layers = 8});
    EXPECT_EQ(first_difference(alone, train({.mesh = {.pipeline = 2},
                                             .mode = VocabMode::none,
                                             .family = "interleaved",
                                             .layers = 8})),
              "");
}

TEST_P(EveryTokenLoss, HasTheSameBitsWithOneBarrierAndTwoAndInEverySchedule) {
    for (const int ranks : {2, 4}) {
        const auto found = [&](VocabMode mode, const std::string& family) {
            return train(
                {.mesh = {.pipeline = ranks}, .mode = mode, .family = family, .layers = 8});
        };
        const Training two = found(VocabMode::two_barriers, "1f1b");
        expect_near(two, train({.mode = VocabMode::none, .layers = 8}));
        for (const std::string family :
             {"1f1b", "gpipe", "zb-h1", "zb-v", "interleaved", "dualpipe-v"}) {
            for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
                if (!has_gradient(mode)) continue;
                SCOPED_TRACE(family + " " + std::string(to_string(mode)) + " " +
                             std::to_string(ranks));
                if (family == "dualpipe-v") {  // a W follows the B of a later microbatch
                    expect_near(found(mode, family), two);
                    continue;
                }
                EXPECT_EQ(first_difference(two, found(mode, family)), "");
            }
        }
        EXPECT_EQ(first_difference(two, found(VocabMode::interlaced, "1f1b")), "");
    }
}

TEST_P(EveryTokenLoss, TrainsAlikeOnEveryMesh) {
    const Training alone = train({.mode = VocabMode::none});
    for (const auto& [mesh, microbatches] :
         {std::pair{Mesh{.pipeline = 2}, 4}, std::pair{Mesh{.pipeline = 2, .data = 2}, 2},
          std::pair{Mesh{.pipeline = 2, .tensor = 2}, 4},
          std::pair{Mesh{.pipeline = 1, .context = 2}, 4},
          std::pair{Mesh{.pipeline = 2, .context = 2}, 4}}) {
        for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
            if (!has_gradient(mode)) continue;
            SCOPED_TRACE(std::string(to_string(mode)) + " " + std::to_string(mesh.data) + " " +
                         std::to_string(mesh.tensor) + " " + std::to_string(mesh.context));
            expect_near(train({.mesh = mesh, .mode = mode, .microbatches = microbatches}), alone);
        }
    }
}

TEST_P(EveryTokenLoss, TrainsOnShorterMicrobatchesAsOnPaddedOnes) {
    const std::vector<int64_t> lengths{5, 8, 4, 4, 5};
    const Training padded =
        train({.mesh = {.pipeline = 2}}, LossSamples(GetParam(), lengths, true));
    for (const auto& [mesh, microbatches] :
         {std::pair{Mesh{.pipeline = 2}, 4}, std::pair{Mesh{.pipeline = 2, .data = 2}, 2}}) {
        expect_near(train({.mesh = mesh, .microbatches = microbatches, .shorter = {5, 4}},
                          LossSamples(GetParam(), lengths)),
                    padded);
    }
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, EveryTokenLoss, ::testing::ValuesIn(losses()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace vocabpipe::testing
