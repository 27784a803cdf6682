// SPDX-License-Identifier: Apache-2.0
#include "src/model/next_token.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/model/fp64_model.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

class NextTokenOfModels : public ::testing::TestWithParam<std::string> {};

TEST_P(NextTokenOfModels, LogitsAfterEveryPrefixGiveTheLossOfTheFp64Model) {
    // 70: some contexts are longer than one step of lengths, the last ones are filled up.
    ModelConfig config = small_family(GetParam(), 2, 70, 29, true);
    const Batch batch = random_batch(config, 1, 1, 5);
    const double expected = fp64_loss(config, batch, initial_weights(config, 7));

    Schedule alone{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
    alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
    const std::unique_ptr<Device> device = make_host_device();
    Context ctx({.threads = 1, .poll = {}, .operators = &device->operators()});
    // Without gradients and moments, as vocabpipe generate holds it.
    ModelRank model(config, {.layers_per_stage = {config.num_layers}, .training = false}, alone, 0,
                    *device);
    model.initialise(ctx, 7);
    NextToken next(model);
    double loss = 0;
    for (size_t n = 0; n < batch.tokens[0].size(); ++n) {
        const std::vector<float> logits = next.logits(ctx, std::span(batch.tokens[0]).first(n + 1));
        double sum = 0;
        for (const float z : logits) sum += std::exp(static_cast<double>(z));
        const auto label = static_cast<size_t>(batch.labels[0][n]);
        loss += batch.loss_gradient[0][n] * (std::log(sum) - logits[label]);
    }
    EXPECT_NEAR(loss, expected, 2e-6 * (1 + expected));  // as oracle_test.cpp derives it
}

TEST(NextToken, SeesTheLastTokensOfALongContext) {
    ModelConfig config = small_family("llama", 1, 8, 29, true);
    Schedule alone{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
    alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
    const std::unique_ptr<Device> device = make_host_device();
    Context ctx({.threads = 1, .poll = {}, .operators = &device->operators()});
    ModelRank model(config, {.layers_per_stage = {1}}, alone, 0, *device);
    model.initialise(ctx, 7);
    NextToken next(model);
    std::vector<int32_t> tokens(20);
    std::iota(tokens.begin(), tokens.end(), 0);
    EXPECT_EQ(next.logits(ctx, tokens), next.logits(ctx, std::span(tokens).last(8)));
    EXPECT_NE(next.logits(ctx, tokens), next.logits(ctx, std::span(tokens).last(7)));
}

INSTANTIATE_TEST_SUITE_P(Families, NextTokenOfModels, ::testing::ValuesIn(model_families()),
                         [](const auto& info) { return info.param; });

TEST(Sampling, FollowsTheDistribution) {
    // Probabilities 1/8, 1/2, 1/8, 1/4: in falling order tokens 1, 3, 0, 2.
    const std::vector<float> logits{std::log(1.0F), std::log(4.0F), std::log(1.0F), std::log(2.0F)};
    const auto at = [&](double u, const SamplingOptions& options = {}) {
        return sample(logits, options, u);
    };
    EXPECT_EQ(at(0), 1);
    EXPECT_EQ(at(0.49), 1);
    EXPECT_EQ(at(0.51), 3);
    EXPECT_EQ(at(0.74), 3);
    EXPECT_EQ(at(0.76), 0);
    EXPECT_EQ(at(0.99), 2);
    EXPECT_EQ(at(0.99, {.temperature = 0}), 1);
    EXPECT_EQ(at(0.99, {.top_k = 2}), 3);
    EXPECT_EQ(at(0.66, {.top_k = 2}), 1);  // of 2/3 and 1/3
    EXPECT_EQ(at(0.99, {.top_p = 0.7}), 3);
    EXPECT_EQ(at(0.99, {.top_p = 0.0}), 1);
    // Halving the temperature squares the ratios: 16 : 4 : 1 : 1.
    EXPECT_EQ(at(0.72, {.temperature = 0.5}), 1);
    EXPECT_EQ(at(0.73, {.temperature = 0.5}), 3);
}

TEST(Sampling, RefusesTheLogitsOfADivergedModel) {
    EXPECT_THROW((void)sample(std::vector<float>{0, std::nanf(""), 1}, {}, 0.5), Error);
    EXPECT_THROW((void)sample(std::vector<float>{0, INFINITY, 1}, {.temperature = 0}, 0.5), Error);
}

TEST(NotForTraining, TakesTheMemoryOfTheWeights) {
    const ModelConfig config = small_family("llama", 2, 8, 29, true);
    Schedule alone{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
    alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
    ModelPartition partition{.layers_per_stage = {config.num_layers}};
    const PersistentBytes training = persistent_bytes(config, partition, alone, 0);
    partition.training = false;
    const PersistentBytes look = persistent_bytes(config, partition, alone, 0);
    EXPECT_EQ(look.weights, training.weights);
    EXPECT_EQ(look.total(), static_cast<int64_t>(training.weights));
}

}  // namespace
}  // namespace vocabpipe::testing
