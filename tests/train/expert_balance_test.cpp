// SPDX-License-Identifier: Apache-2.0
// What a step does with the loads of experts: the correction bias, and the metrics of routers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/fp64_model.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "tests/train/training_run.hpp"

namespace vocabpipe::testing {
namespace {

constexpr float kRate = 0.03F;

/// Weights stay as they are, so that only biases move.
TrainingSetup frozen_model(ModelConfig config) {
    TrainingSetup setup{.config = std::move(config), .ranks = 2, .microbatches = 4, .steps = 1};
    setup.learning_rate = {.lr = 0, .min_lr = 0, .decay_iters = 30};
    return setup;
}

ModelConfig dots() {
    ModelConfig config = small_family("dots1", 4, 8, 37, false);
    config.moe.experts = 6;
    config.moe.top_k = 2;
    config.moe.ffn_hidden_size = 11;
    config.moe.bias_rate = kRate;
    config.moe.sparse = {false, true, true, true};
    return config;
}

std::string bias_name(int layer) {
    return "model.layers." + std::to_string(layer) + ".mlp.gate.e_score_correction_bias";
}

// Layer 4 is that of a depth of multi-token prediction.
TEST(CorrectionBiasOfAStep, MovesByTheLoadsOfAllMicrobatchesAndReplicas) {
    TrainingSetup setup = frozen_model(dots());
    setup.config.mtp_num_layers = 1;
    const Tensors weights = initial_weights(setup.config, setup.seed);
    for (const int replicas : {1, 2}) {
        setup.replicas = replicas;
        setup.microbatches = 4 / replicas;
        for (const char* const schedule : {"1f1b", "zb-h1"}) {
            setup.family = schedule;
            const Training after = train_on_threads(setup);
            const Fp64Step step = fp64_step(setup.config, toy_batch(setup, 1), weights);
            ASSERT_GT(step.least_gap, 1e-5) << "roundings decide; take another seed";
            EXPECT_TRUE(step.loads[0].empty());
            for (int layer = 1; layer < 5; ++layer) {
                const auto [first, last] = after.correction_biases.equal_range(bias_name(layer));
                EXPECT_EQ(std::distance(first, last), replicas);
                const std::vector<double>& load = step.loads[static_cast<size_t>(layer)];
                const double mean = std::accumulate(load.begin(), load.end(), 0.0) / 6;
                EXPECT_NEAR(mean, 4 * 2 * 8 * 2 / 6.0, 1e-12) << "4 microbatches of 16 tokens";
                std::vector<float> expected;
                for (const double of : load) {
                    expected.push_back(of < mean ? kRate : of > mean ? -kRate : 0);
                }
                for (auto bias = first; bias != last; ++bias) EXPECT_EQ(bias->second, expected);
            }
        }
    }
}

TEST(CorrectionBiasOfAStep, EvensOutLoads) {
    TrainingSetup setup = frozen_model(dots());
    setup.steps = 60;
    setup.sequences = 16;  // 512 tokens a step, whose chance is small beside the imbalance
    setup.config.moe.bias_rate = 0.01F;
    const Training balanced = train_on_threads(setup);
    setup.config.moe.bias_rate = 0;
    const Training frozen = train_on_threads(setup);
    const auto mean_load = [](const Training& run, size_t begin) {
        double sum = 0;
        for (size_t i = begin; i < begin + 10; ++i) sum += run.routers[i]->max_load / 10;
        return sum;
    };
    std::cout << "greatest load over mean, first and last ten steps: " << mean_load(balanced, 0)
              << ", " << mean_load(balanced, 50) << "; without the bias " << mean_load(frozen, 0)
              << ", " << mean_load(frozen, 50) << "\n";
    EXPECT_LT(mean_load(balanced, 50) - 1, 0.5 * (mean_load(frozen, 50) - 1));
    EXPECT_LT(mean_load(balanced, 50), mean_load(balanced, 0));
    for (const auto& [name, bias] : frozen.correction_biases) {
        EXPECT_EQ(bias, std::vector<float>(6, 0.0F)) << name;
    }
}

TEST(CorrectionBiasOfAStep, StaysAsItIsInASkippedStep) {
    TrainingSetup setup = frozen_model(dots());
    setup.all_ignored = true;
    const Training after = train_on_threads(setup);
    EXPECT_FALSE(after.updated[0]);
    for (const auto& [name, bias] : after.correction_biases) {
        EXPECT_EQ(bias, std::vector<float>(6, 0.0F)) << name;
    }
}

TEST(CorrectionBiasOfAStep, IsTheSameInEverySchedule) {
    TrainingSetup setup = frozen_model(dots());
    setup.learning_rate = {.lr = 1e-2, .min_lr = 1e-3, .warmup_iters = 3, .decay_iters = 30};
    setup.steps = 4;
    setup.config.num_layers = 4;
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        setup.config.dtype = dtype;
        setup.ranks = 1;
        setup.family = "1f1b";
        const Training alone = train_on_threads(setup);
        for (const char* const schedule : {"1f1b", "zb-h1", "v-half", "interleaved"}) {
            setup.ranks = 2;
            setup.family = schedule;
            const Training found = train_on_threads(setup);
            EXPECT_EQ(found.correction_biases, alone.correction_biases) << schedule;
        }
    }
}

TEST(RouterMetrics, AreThoseOfTheFp64ModelOverLayersMicrobatchesAndReplicas) {
    for (const auto& [family, depths] :
         {std::pair("mixtral", 0), {"dots1", 0}, {"qwen2_moe", 0}, {"mixtral", 2}, {"dots1", 1}}) {
        TrainingSetup setup = frozen_model(small_family(family, 4, 8, 37, false));
        setup.config.mtp_num_layers = depths;
        setup.config.moe.sparse = {false, true, true, true};
        if (std::string(family) == "mixtral") setup.config.moe.sparse.clear();
        const Tensors weights = initial_weights(setup.config, setup.seed);
        Batch batch = toy_batch(setup, 1);
        const auto layers = (setup.config.moe.sparse.empty() ? 4.0 : 3.0) + depths;
        // All microbatches have the same weight, and the weights add up to 1.
        ModelConfig balance = setup.config, z = setup.config;
        balance.moe.aux_loss = z.moe.z_loss = 1;
        const Fp64Step expected = fp64_step(balance, batch, weights);
        ASSERT_GT(expected.least_gap, 1e-5) << "roundings decide; take another seed";
        double max_load = 0;
        for (const std::vector<double>& load : expected.loads) {
            if (load.empty()) continue;
            const double mean =
                std::accumulate(load.begin(), load.end(), 0.0) / static_cast<double>(load.size());
            max_load = std::max(max_load, std::ranges::max(load) / mean);
        }
        for (const int replicas : {1, 2}) {
            setup.replicas = replicas;
            setup.microbatches = 4 / replicas;
            const Training run = train_on_threads(setup);
            ASSERT_TRUE(run.routers[0].has_value());
            EXPECT_NEAR(run.routers[0]->aux_loss, expected.router_loss / layers, 1e-5) << family;
            EXPECT_NEAR(run.routers[0]->z_loss, fp64_step(z, batch, weights).router_loss / layers,
                        1e-5)
                << family;
            EXPECT_DOUBLE_EQ(run.routers[0]->max_load, max_load) << family;
        }
    }
}

TEST(RouterMetrics, AreNotThereWithoutExperts) {
    const Training run = train_on_threads(frozen_model(small_family("llama", 2, 8, 37, false)));
    EXPECT_FALSE(run.routers[0].has_value());
}

}  // namespace
}  // namespace vocabpipe::testing
