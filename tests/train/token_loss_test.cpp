// SPDX-License-Identifier: Apache-2.0
// Losses of records in whole steps: against weighted cross-entropies of a model in double, and in
// every vocabulary mode.
#include "vocabpipe/token_loss.hpp"

#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/token_problem.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/policy_loss.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 7;
constexpr int64_t kVocabulary = 19;
constexpr int64_t kLength = 5;

/// A small batch with advantages, old log-probabilities and those of a reference, both near the
/// model's own.
struct PolicyProblem {
    ModelConfig config;
    Batch batch;
    std::vector<std::vector<double>> log_p;  ///< of log_probabilities()

    explicit PolicyProblem(float logit_softcap = 0)
        : config([&] {
              ModelConfig made = small_family("llama", 4, kLength, kVocabulary, false);
              made.logit_softcap = logit_softcap;
              return made;
          }()),
          batch(random_batch(config, 2, 2, 3, 0.2)),
          log_p(log_probabilities(config, batch, initial_weights(config, kSeed))) {
        std::mt19937 random(5);
        std::normal_distribution<double> normal;
        size_t at = 0;
        for (size_t j = 0; j < batch.tokens.size(); ++j) {
            const size_t tokens = batch.tokens[j].size();
            std::vector<float>& columns = batch.columns.emplace_back(3 * tokens);
            for (size_t n = 0; n < tokens; ++n, ++at) {
                const int32_t label = batch.labels[j][n];
                const double own = label < 0 ? 0 : log_p[at][static_cast<size_t>(label)];
                columns[n] = static_cast<float>(normal(random));
                columns[tokens + n] = static_cast<float>(own + 0.3 * normal(random));
                columns[2 * tokens + n] = static_cast<float>(own + 0.3 * normal(random));
            }
        }
    }
};

/// One step on threads; `microbatches` are those of the problem.
Gradients step_with(const PolicyProblem& problem, std::shared_ptr<const TokenLoss> loss,
                    VocabMode mode, int ranks) {
    const Schedule schedule = make_schedule("1f1b", {.ranks = ranks,
                                                     .microbatches = 2,
                                                     .vocab_mode = mode,
                                                     .vocab_size = problem.config.vocab_size});
    ModelPartition partition = even_partition(problem.config, schedule, problem.batch.sequences);
    partition.loss = std::move(loss);
    World world = World::threads(ranks, {.timeout_seconds = 30});
    return run_pipeline(world, problem.config, partition, schedule, problem.batch, kSeed);
}

/// The textbook objective of a token: the loss, and its slopes by log p and by the entropy.
struct Objective {
    double loss = 0, by_logprob = 0, by_entropy = 0;
};
Objective objective_of(const PolicyLossOptions& o, double logprob, double entropy, double advantage,
                       double old, double reference) {
    const double ratio = std::exp(logprob - old);
    const double clipped = std::min(std::max(ratio, 1.0 - o.clip_low), 1.0 + o.clip_high);
    Objective found{.loss = -std::min(ratio * advantage, clipped * advantage)};
    if (ratio == clipped || ratio * advantage < clipped * advantage) {
        found.by_logprob = -ratio * advantage;
    }
    const double d = logprob - reference;
    const double beta = o.kl_coefficient;
    if (beta != 0 && o.kl == KlEstimator::k1) {
        found.loss += beta * d;
        found.by_logprob += beta;
    } else if (beta != 0 && o.kl == KlEstimator::k2) {
        found.loss += beta * d * d / 2;
        found.by_logprob += beta * d;
    } else if (beta != 0) {
        found.loss += beta * (std::exp(-d) - 1 + d);
        found.by_logprob += beta * (1 - std::exp(-d));
    }
    found.loss -= o.entropy_coefficient * entropy;
    found.by_entropy = -o.entropy_coefficient;
    return found;
}

/// A whole step in double: losses by microbatch, and gradients. That of an entropy H is the sum
/// over ids v of p_v log p_v times that of -log p_v (and of p_v times it: 0).
Fp64Step expected_step(const PolicyProblem& problem, const PolicyLossOptions& options) {
    const Batch& batch = problem.batch;
    Batch weighted{.sequences = batch.sequences, .seq_length = batch.seq_length};
    std::vector<double> losses;
    size_t at = 0;
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        const size_t tokens = batch.tokens[j].size();
        losses.push_back(0);
        std::vector<double> by_entropy(tokens), entropies(tokens);
        const size_t first = at;
        add_question(batch, j, weighted);
        for (size_t n = 0; n < tokens; ++n, ++at) {
            const int32_t label = batch.labels[j][n];
            if (label < 0) continue;
            for (const double log_p : problem.log_p[at]) {
                entropies[n] -= std::exp(log_p) * log_p;
            }
            const std::vector<float>& c = batch.columns[j];
            const Objective found =
                objective_of(options, problem.log_p[at][static_cast<size_t>(label)], entropies[n],
                             c[n], c[tokens + n], c[2 * tokens + n]);
            const double g = batch.loss_gradient[j][n];
            losses.back() += g * found.loss;
            weighted.labels.back()[n] = label;
            weighted.loss_gradient.back()[n] = static_cast<float>(-g * found.by_logprob);
            by_entropy[n] = g * found.by_entropy;
        }
        for (int32_t v = 0; v < kVocabulary && options.entropy_coefficient != 0; ++v) {
            add_question(batch, j, weighted);
            for (size_t n = 0; n < tokens; ++n) {
                if (by_entropy[n] == 0) continue;
                const double log_p = problem.log_p[first + n][static_cast<size_t>(v)];
                weighted.labels.back()[n] = v;
                weighted.loss_gradient.back()[n] =
                    static_cast<float>(by_entropy[n] * std::exp(log_p) * (log_p + entropies[n]));
            }
        }
    }
    Fp64Step step = fp64_step(problem.config, weighted, initial_weights(problem.config, kSeed));
    step.losses = losses;
    return step;
}

void expect_step(const Gradients& found, const Fp64Step& expected) {
    ASSERT_EQ(found.losses.size(), expected.losses.size());
    for (size_t j = 0; j < found.losses.size(); ++j) {
        EXPECT_NEAR(found.losses[j], expected.losses[j], 1e-6);
    }
    // What fp32 leaves of cross-entropies of such a model is below 1e-5 (tests/model).
    const WorstError worst = worst_error(found, expected.gradients);
    EXPECT_LT(worst.value, 2e-5) << worst.name;
}

const std::vector<PolicyLossOptions>& policy_options() {
    static const std::vector<PolicyLossOptions> all{
        {},
        {.clip_low = 0.1F, .clip_high = 0.3F, .kl_coefficient = 0.04F},
        {.kl_coefficient = 0.5F, .kl = KlEstimator::k2},
        {.kl_coefficient = 0.5F, .kl = KlEstimator::k1},
    };
    return all;
}

TEST(PolicyLoss, HasTheValuesAndGradientsOfWeightedCrossEntropiesInFp64) {
    const PolicyProblem problem;
    for (const PolicyLossOptions& options : policy_options()) {
        SCOPED_TRACE(std::string(to_string(options.kl)) + " " +
                     std::to_string(options.kl_coefficient));
        const Fp64Step expected = expected_step(problem, options);
        for (const VocabMode mode : kEveryVocabMode) {
            SCOPED_TRACE(to_string(mode));
            expect_step(step_with(problem, std::make_shared<PolicyLoss>(options), mode, 2),
                        expected);
        }
    }
}

TEST(PolicyLoss, WithAnEntropyBonusHasTheGradientsOfTheEntropyInFp64) {
    const PolicyProblem problem;
    const PolicyLossOptions options{.kl_coefficient = 0.04F, .entropy_coefficient = 0.7F};
    const Fp64Step expected = expected_step(problem, options);
    for (const VocabMode mode : kEveryVocabMode) {
        if (mode == VocabMode::one_barrier) continue;
        SCOPED_TRACE(to_string(mode));
        expect_step(step_with(problem, std::make_shared<PolicyLoss>(options), mode, 2), expected);
    }
}

TEST(PolicyLoss, WithAnEntropyBonusHasTheGradientsOfSoftCappedLogitsInFp64) {
    const PolicyProblem problem(0.3F);
    const PolicyLossOptions options{.kl_coefficient = 0.04F, .entropy_coefficient = 0.7F};
    const Fp64Step expected = expected_step(problem, options);
    for (const VocabMode mode : kEveryVocabMode) {
        if (mode == VocabMode::one_barrier) continue;
        SCOPED_TRACE(to_string(mode));
        expect_step(step_with(problem, std::make_shared<PolicyLoss>(options), mode, 2), expected);
    }
}

TEST(HostTokenLoss, ThatIsTheCrossEntropyHasItsBits) {
    const PolicyProblem problem;
    const auto loss =
        std::make_shared<HostTokenLoss>(TokenRecords{TokenRecord::logprob}, 0,
                                        [](const TokenLossInput& in, const TokenLossOutput& out) {
                                            for (size_t n = 0; n < in.labels.size(); ++n) {
                                                if (in.labels[n] < 0) continue;
                                                out.loss[n] = -in.of(TokenRecord::logprob)[n];
                                                out.gradient[n] = in.weights[n];
                                            }
                                        });
    for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
        EXPECT_EQ(first_difference(step_with(problem, nullptr, mode, 2),
                                   step_with(problem, loss, mode, 2)),
                  "");
    }
}

std::string refusal(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was refused";
}

TEST(TokenLoss, IsRefusedWhereItsGradientCannotBeMade) {
    PolicyProblem problem;
    const auto bonus = std::make_shared<PolicyLoss>(PolicyLossOptions{.entropy_coefficient = 0.1F});
    EXPECT_THAT(refusal([&] { (void)step_with(problem, bonus, VocabMode::one_barrier, 2); }),
                HasSubstr("one_barrier: multiplies before the gradient of the entropy is known"));
    problem.config.z_loss = 0.1F;
    EXPECT_THAT(refusal([&] { (void)step_with(problem, bonus, VocabMode::none, 1); }),
                HasSubstr("which the step's TokenLoss replaces"));
    problem.config.z_loss = 0;
    const auto of_ranks =
        std::make_shared<HostTokenLoss>(TokenRecords{TokenRecord::label_rank}, 0,
                                        [](const TokenLossInput&, const TokenLossOutput&) {});
    EXPECT_THAT(refusal([&] { (void)step_with(problem, of_ranks, VocabMode::none, 1); }),
                HasSubstr("reads the record label_rank, which only StepWork::records can ask for"));
    for (auto& columns : problem.batch.columns) columns.resize(columns.size() / 3);
    EXPECT_THAT(refusal([&] { (void)step_with(problem, bonus, VocabMode::none, 1); }),
                HasSubstr("the loss reads 2 columns of numbers for every token, but microbatch 0 "
                          "has 1"));
}

TEST(PolicyLoss, RefusesOptionsThatAreNone) {
    EXPECT_THROW(PolicyLoss({.clip_low = -0.1F}), UsageError);
    EXPECT_THROW(PolicyLoss({.clip_low = 1.5F}), UsageError);
    EXPECT_THROW(PolicyLoss({.kl_coefficient = NAN}), UsageError);
    EXPECT_THROW((void)kl_estimator_from("k4"), UsageError);
}

TEST(PreferenceLoss, IsThatOfDpoAndItsSlopesAreTheAdvantages) {
    for (const double lead : {-900.0, -3.0, 0.0, 0.7, 40.0, 900.0}) {
        const PreferencePair pair{.chosen = -20 + lead,
                                  .rejected = -25,
                                  .chosen_reference = -21,
                                  .rejected_reference = -26};
        const PreferenceLoss found = preference_loss(pair, 0.1);
        if (std::abs(lead) < 100) {
            EXPECT_NEAR(found.loss, -std::log(1 / (1 + std::exp(-0.1 * lead))), 1e-14);
        }
        // By finite differences of either answer's log-probability.
        PreferencePair more = pair, less = pair;
        more.chosen += 1e-4;
        less.chosen -= 1e-4;
        const auto slope = [&] {
            return (preference_loss(more, 0.1).loss - preference_loss(less, 0.1).loss) / 2e-4;
        };
        EXPECT_NEAR(slope(), -found.advantage, 1e-8);
        more = less = pair;
        more.rejected += 1e-4;
        less.rejected -= 1e-4;
        EXPECT_NEAR(slope(), found.advantage, 1e-8);
    }
}

TEST(GroupAdvantages, HaveMeanZeroAndDeviationOneInEachGroup) {
    const std::vector<float> rewards{1, 2, 3, 6, 5, 5, 5, 5};
    const std::vector<float> found = group_advantages(rewards, 4);
    const double deviation = std::sqrt((4.0 + 1 + 0 + 9) / 3);
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(found[i], (rewards[i] - 3) / (deviation + 1e-6), 1e-6);
        EXPECT_EQ(found[4 + i], 0);
    }
    EXPECT_EQ(group_advantages(rewards, 1), std::vector<float>(8));
    EXPECT_THROW((void)group_advantages(rewards, 3), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
