// SPDX-License-Identifier: Apache-2.0
// Distillation against lists of a teacher in whole steps, against weighted cross-entropies of a
// model in double, in every vocabulary mode.
#include "vocabpipe/distillation_loss.hpp"

#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/token_problem.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kListSeed = 7;
constexpr int64_t kListVocabulary = 19;

/// A small batch with lists of a teacher whose logits are random numbers; the last entry of every
/// third token is missing.
struct ListProblem {
    ModelConfig config;
    Batch batch;
    int64_t top_k;

    explicit ListProblem(int64_t k)
        : config(small_family("llama", 4, 5, kListVocabulary, false)),
          batch(random_batch(config, 2, 2, 3, 0.2)),
          top_k(k) {
        std::mt19937 random(5);
        std::normal_distribution<double> normal;
        for (const std::vector<int32_t>& ids : batch.tokens) {
            const size_t tokens = ids.size();
            const auto entries = static_cast<size_t>(k);
            std::vector<float>& columns = batch.columns.emplace_back(2 * entries * tokens);
            for (size_t n = 0; n < tokens; ++n) {
                std::vector<double> z(kListVocabulary);
                for (double& one : z) one = 2 * normal(random);
                double sum = 0;
                for (const double one : z) sum += std::exp(one);
                std::vector<size_t> order(z.size());
                std::iota(order.begin(), order.end(), size_t{0});
                std::ranges::sort(order, std::greater{}, [&](size_t id) { return z[id]; });
                for (size_t i = 0; i < entries; ++i) {
                    const bool missing = n % 3 == 0 && i + 1 == entries;
                    columns[i * tokens + n] =
                        missing ? -INFINITY : static_cast<float>(z[order[i]] - std::log(sum));
                    columns[(entries + i) * tokens + n] =
                        missing ? -1.0F : static_cast<float>(order[i]);
                }
            }
        }
    }
};

Gradients step_with(const ListProblem& problem, float kl_share, VocabMode mode, int ranks) {
    const Schedule schedule = make_schedule("1f1b", {.ranks = ranks,
                                                     .microbatches = 2,
                                                     .vocab_mode = mode,
                                                     .vocab_size = problem.config.vocab_size});
    ModelPartition partition = even_partition(problem.config, schedule, problem.batch.sequences);
    partition.loss = std::make_shared<DistillationLoss>(
        DistillationOptions{.top_k = problem.top_k, .kl_share = kl_share});
    World world = World::threads(ranks, {.timeout_seconds = 30});
    return run_pipeline(world, problem.config, partition, schedule, problem.batch, kListSeed);
}

/// A whole step in double. The gradient of the divergence is that of the cross-entropies of the
/// list's ids, weighted by the teacher's probabilities.
Fp64Step expected_step(const ListProblem& problem, double kl_share) {
    const Batch& batch = problem.batch;
    const Tensors weights = initial_weights(problem.config, kListSeed);
    const auto log_p = log_probabilities(problem.config, batch, weights);
    Batch weighted{.sequences = batch.sequences, .seq_length = batch.seq_length};
    std::vector<double> losses;
    size_t first = 0;
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        const size_t tokens = batch.tokens[j].size();
        const auto entries = static_cast<size_t>(problem.top_k);
        losses.push_back(0);
        for (size_t i = 0; i <= entries; ++i) {
            add_question(batch, j, weighted);
            for (size_t n = 0; n < tokens; ++n) {
                const int32_t label = batch.labels[j][n];
                if (label < 0) continue;
                double weight = (1 - kl_share) * batch.loss_gradient[j][n];
                int32_t id = label;
                double log_t = 0;
                if (i > 0) {
                    log_t = batch.columns[j][(i - 1) * tokens + n];
                    if (std::isinf(log_t)) continue;
                    id = static_cast<int32_t>(batch.columns[j][(entries + i - 1) * tokens + n]);
                    weight = kl_share * batch.loss_gradient[j][n] * std::exp(log_t);
                }
                losses.back() += weight * (log_t - log_p[first + n][static_cast<size_t>(id)]);
                weighted.labels.back()[n] = id;
                weighted.loss_gradient.back()[n] = static_cast<float>(weight);
            }
        }
        first += tokens;
    }
    Fp64Step step = fp64_step(problem.config, weighted, weights);
    step.losses = losses;
    return step;
}

TEST(DistillationLoss, HasTheValuesAndGradientsOfWeightedCrossEntropiesInFp64) {
    for (const auto& [k, kl_share] :
         {std::pair{1, 1.0F}, std::pair{6, 1.0F}, std::pair{6, 0.25F}, std::pair{19, 0.75F}}) {
        const ListProblem problem(k);
        const Fp64Step expected = expected_step(problem, kl_share);
        for (const VocabMode mode : kEveryVocabMode) {
            SCOPED_TRACE(std::to_string(k) + " entries, share " + std::to_string(kl_share) + ", " +
                         std::string(to_string(mode)));
            const Gradients found = step_with(problem, kl_share, mode, 2);
            ASSERT_EQ(found.losses.size(), expected.losses.size());
            for (size_t j = 0; j < found.losses.size(); ++j) {
                EXPECT_NEAR(found.losses[j], expected.losses[j], 2e-6);
            }
            const WorstError worst = worst_error(found, expected.gradients);
            EXPECT_LT(worst.value, 2e-5) << worst.name;
        }
    }
}

TEST(DistillationLoss, RefusesListsThatAreNone) {
    EXPECT_THROW(DistillationLoss({.top_k = 0}), UsageError);
    EXPECT_THROW(DistillationLoss({.top_k = 65}), UsageError);
    EXPECT_THROW(DistillationLoss({.kl_share = 1.5F}), UsageError);
    EXPECT_THROW(DistillationLoss({.kl_share = NAN}), UsageError);
    const auto refused = [](const ListProblem& problem) -> std::string {
        try {
            (void)step_with(problem, 1, VocabMode::none, 1);
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing was refused";
    };
    ListProblem outside(2);
    outside.batch.columns[0].back() = 19;
    EXPECT_THAT(refused(outside), HasSubstr("is outside the vocabulary of 19 rows"));
    ListProblem missing(2);
    for (auto& columns : missing.batch.columns) columns.resize(columns.size() / 2);
    EXPECT_THAT(refused(missing), HasSubstr("the loss reads 4 columns of numbers for every token"));
}

}  // namespace
}  // namespace vocabpipe::testing
