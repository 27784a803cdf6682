// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters against the fp64 model whose weights contain them.
#include "src/model/adapters.hpp"
#include "src/model/parameters.hpp"
#include "tests/model/folded_adapters.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Those of oracle_test.cpp, with two more products on the way through each linear layer. Measured:
// 5.7e-6.
constexpr double kFp32Bound = 1e-5;
constexpr double kFp32LossBound = 2e-6;

class Adapters : public ::testing::TestWithParam<ModelCase> {};

TEST_P(Adapters, HaveLossAndGradientsOfTheModelThatContainsTheirProducts) {
    const ModelCase& c = GetParam();
    const ModelConfig config = with_adapters(c.config, 3, 4.5F);
    check_adapters(config);
    const Batch batch = c.batch();
    const Tensors weights = random_weights(config, 3);  // B, too, is not 0
    const Fp64Step of_folded = fp64_step(c.config, batch, folded(config, weights));
    const Tensors expected = unfolded_gradients(config, weights, of_folded.gradients);
    for (const char* schedule : {"1f1b", "zb-h1"}) {  // whole and split backward
        SCOPED_TRACE(schedule);
        const Gradients actual =
            run_with_weights(config,
                             make_schedule(schedule, {.ranks = c.ranks,
                                                      .microbatches = c.microbatches,
                                                      .vocab_mode = VocabMode::one_barrier,
                                                      .vocab_size = config.vocab_size}),
                             batch, weights);
        const WorstError worst = worst_error(actual, expected);
        EXPECT_LE(worst.value, kFp32Bound) << worst.name;
        ASSERT_EQ(actual.losses.size(), of_folded.losses.size());
        for (size_t j = 0; j < actual.losses.size(); ++j) {
            EXPECT_NEAR(actual.losses[j], of_folded.losses[j],
                        kFp32LossBound * (1 + of_folded.losses[j]));
        }
    }
}

std::vector<ModelCase> cases() {
    std::vector<ModelCase> all = model_cases();
    // Its three tokens choose three experts, so that the gradient of its router is exactly 0, which
    // no fp32 sum is near to in relation.
    std::erase_if(all, [](const ModelCase& c) { return c.name == "MixtralFewTokensUntied"; });
    // Adapters of depths are refused.
    std::erase_if(all, [](const ModelCase& c) { return c.config.mtp_num_layers > 0; });
    return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Adapters, ::testing::ValuesIn(cases()), name_of_model);

TEST(NewAdapters, AddNothingAndLeaveTheOtherTensorsTheirInitialValues) {
    const ModelConfig config = small_family("llama", 2, 6, 29, false);
    const ModelConfig adapted = with_adapters(config, 4, 8);
    const Tensors expected = initial_weights(config, 7);
    const Tensors weights = initial_weights(adapted, 7);
    EXPECT_EQ(folded(adapted, weights), expected);
    EXPECT_NE(initial_weights(adapted, 8), weights);
}

TEST(NewAdapters, HaveAOfPeftsDistribution) {
    ModelConfig config = small_model(1, 6, 29, false);
    config.hidden_size = 64;
    config.lora = {.rank = 32, .target_modules = {"c_attn"}};
    const Tensors weights = initial_weights(config, 7);
    const auto& a = weights.at("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
    ASSERT_EQ(a.size(), 32U * 64U);
    const double bound = 1 / std::sqrt(64.0);
    double sum = 0, squares = 0;
    for (const double value : a) {
        EXPECT_LE(std::abs(value), bound);
        sum += value;
        squares += value * value;
    }
    // Moments of 2048 uniform numbers: mean 0 and mean square bound^2 / 3, with four standard
    // deviations.
    EXPECT_LE(std::abs(sum / 2048), 4 * bound / std::sqrt(3.0 * 2048));
    EXPECT_NEAR(squares / 2048, bound * bound / 3, 4 * bound * bound * 0.298 / std::sqrt(2048.0));
    const auto& b = weights.at("base_model.model.transformer.h.0.attn.c_attn.lora_B.weight");
    EXPECT_EQ(b, std::vector<double>(3U * 64U * 32U, 0.0));
}

// --- which layers

std::vector<std::string> adapted(ModelConfig config, std::vector<std::string> targets) {
    config.lora = {.rank = 2, .target_modules = std::move(targets)};
    check_adapters(config);
    return adapted_modules(config);
}

TEST(TargetModules, AreTheLastPartsOfNames) {
    const ModelConfig llama = small_family("llama", 2, 6, 29, false);
    EXPECT_THAT(adapted(llama, {"v_proj", "1.mlp.down_proj"}),
                ElementsAre("model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.v_proj",
                            "model.layers.1.mlp.down_proj"));
    EXPECT_EQ(adapted(llama, {}).size(), 2U * 7U);
    const ModelConfig gpt2 = small_model(1, 6, 29, false);
    EXPECT_THAT(adapted(gpt2, {"c_proj"}),
                ElementsAre("transformer.h.0.attn.c_proj", "transformer.h.0.mlp.c_proj"));
    EXPECT_THAT(adapted(small_family("gpt_neox", 1, 6, 29, false), {"query_key_value"}),
                ElementsAre("gpt_neox.layers.0.attention.query_key_value"));
}

TEST(TargetModules, ThatCannotHaveAdaptersAreRefusedByName) {
    const auto refusal = [](const ModelConfig& config, std::vector<std::string> targets) {
        try {
            (void)adapted(config, std::move(targets));
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const ModelConfig llama = small_family("llama", 2, 6, 29, false);
    EXPECT_EQ(refusal(llama, {"query"}),
              "--lora-target-modules query: no linear layer has this name; use some of q_proj, "
              "k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
    EXPECT_THAT(refusal(llama, {"proj"}), HasSubstr("no linear layer has this name"));
    EXPECT_THAT(refusal(llama, {"q_proj", "embed_tokens"}),
                HasSubstr("model.embed_tokens can have no adapter"));
    EXPECT_THAT(refusal(llama, {"lm_head"}), HasSubstr("lm_head can have no adapter"));
    const ModelConfig mixtral = small_family("mixtral", 2, 6, 29, false);
    EXPECT_THAT(refusal(mixtral, {"w1"}), HasSubstr("can have no adapter; use layers of q_proj"));
    EXPECT_THAT(refusal(mixtral, {"gate"}), HasSubstr("block_sparse_moe.gate can have no adapter"));
    EXPECT_THAT(refusal(mixtral, {}), HasSubstr("all-linear: experts (mixtral) have no adapters"));
    ModelConfig without = llama;
    without.lora.alpha = 16;
    EXPECT_THROW(check_adapters(without), UsageError);
    without.lora = {.target_modules = {"q_proj"}};
    EXPECT_THROW(check_adapters(without), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
