// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/checkpoint/config_json.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

json gpt_neox() {
    return {{"model_type", "gpt_neox"}, {"vocab_size", 32003},    {"hidden_size", 96},
            {"intermediate_size", 200}, {"num_hidden_layers", 4}, {"num_attention_heads", 6}};
}

TEST(GptNeoxConfig, TakesTransformersDefaults) {
    const ModelConfig neox = parsed(gpt_neox());
    EXPECT_EQ(neox.max_position_embeddings, 2048);
    EXPECT_EQ(neox.norm_epsilon, 1e-5F);
    EXPECT_EQ(neox.rotary_channels, 4);  // a quarter of 16
    EXPECT_EQ(neox.rope, Rope{});
    EXPECT_EQ(neox.activation, kernels::Activation::gelu);
    EXPECT_TRUE(neox.parallel_residual && neox.qkv_bias && neox.attention_output_bias);
    EXPECT_TRUE(neox.mlp_bias);
    EXPECT_FALSE(neox.learned_positions || neox.gated || neox.tied);
}

TEST(GptNeoxConfig, IsReadAndPrinted) {
    json neox = gpt_neox();
    neox["rotary_pct"] = 0.5;
    neox["rotary_emb_base"] = 500;
    neox["use_parallel_residual"] = false;
    neox["attention_bias"] = false;
    neox["hidden_act"] = "gelu_fast";
    const ModelConfig in_a_row = parsed(neox);
    EXPECT_EQ(in_a_row.rotary_size(), 8);
    EXPECT_EQ(in_a_row.rope.theta, 500);
    EXPECT_FALSE(in_a_row.parallel_residual || in_a_row.qkv_bias);
    EXPECT_FALSE(in_a_row.attention_output_bias);
    EXPECT_EQ(in_a_row.activation, kernels::Activation::gelu_tanh);
    EXPECT_EQ(printed(in_a_row).at("rotary_pct"), 0.5);
    EXPECT_EQ(printed(in_a_row).at("rotary_emb_base"), 500);
    EXPECT_EQ(printed(in_a_row).at("hidden_act"), "gelu_pytorch_tanh");
    EXPECT_EQ(printed(parsed(gpt_neox())).at("hidden_act"), "gelu");
    neox["rope_parameters"] = {{"partial_rotary_factor", 1}, {"rope_theta", 700}};
    EXPECT_EQ(parsed(neox).rotary_channels, 0);
    EXPECT_EQ(parsed(neox).rope.theta, 700);
    // 49 * (4 / 49) is less than 4 in double.
    neox["hidden_size"] = 49 * 6;
    neox["rope_parameters"]["partial_rotary_factor"] = 0.09;
    EXPECT_EQ(parsed(neox).rotary_channels, 4);
    EXPECT_EQ(parsed(printed(parsed(neox))).rotary_channels, 4);
}

TEST(GptNeoxConfig, TurnsOneColumnMoreThanAnOddNumber) {
    // As transformers: int(22 * 0.25) is 5, whose angles have exponents of 0, 2 and 4 fifths.
    const ModelConfig odd = parsed(with(gpt_neox(), "hidden_size", 132));
    EXPECT_EQ(odd.head_size(), 22);
    EXPECT_EQ(odd.rotary_dimension(), 5);
    EXPECT_EQ(odd.rotary_size(), 6);
    EXPECT_EQ(parsed(printed(odd)).rotary_channels, 5);
    const std::vector<float> table = rotary_table(odd.rope, odd.rotary_dimension(), 3);
    ASSERT_EQ(table.size(), 3U * 6);
    for (int t = 0; t < 3; ++t) {
        for (int i = 0; i < 3; ++i) {
            const double angle = t * std::pow(10000.0, -2.0 * i / 5);
            EXPECT_FLOAT_EQ(table[static_cast<size_t>(6 * t + i)],
                            static_cast<float>(std::cos(angle)));
            EXPECT_FLOAT_EQ(table[static_cast<size_t>(6 * t + 3 + i)],
                            static_cast<float>(std::sin(angle)));
        }
    }
}

TEST(GptNeoxConfig, RefusesByNameWhatIsNotComputed) {
    EXPECT_THAT(refused(with(gpt_neox(), "hidden_act", "relu")),
                HasSubstr("hidden_act: \"relu\" is not supported; use gelu, gelu_new"));
    EXPECT_THAT(refused(with(gpt_neox(), "rotary_pct", 0.05)),
                HasSubstr("rotary_pct: rotary positions turn 0 of the 16 columns of a head; it "
                          "must be at least one"));
    json odd = with(with(gpt_neox(), "hidden_size", 42), "rotary_pct", 1.0);
    EXPECT_THAT(refused(odd), HasSubstr("turn 7 of the 7 columns of a head; it must be an even"));
    odd["rotary_pct"] = 0.8;
    EXPECT_EQ(parsed(odd).rotary_dimension(), 5);
    odd["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2.0}};
    EXPECT_THAT(refused(odd), HasSubstr("turn 5 of the 7 columns of a head; with this rope_type"));
    EXPECT_THAT(refused(with(gpt_neox(), "rotary_pct", 1.5)), HasSubstr("rotary_pct: 1.5"));
    EXPECT_THAT(refused(with(gpt_neox(), "head_dim", 8)), HasSubstr("head_dim: must be hidden"));
    EXPECT_EQ(parsed(with(gpt_neox(), "head_dim", 16)).head_size(), 16);
    EXPECT_THAT(refused(with(gpt_neox(), "rotary_emb_base", 1)), HasSubstr("rotary_emb_base: 1"));
}

TEST(GptNeoxConfig, IsComparedWithTheRun) {
    EXPECT_THAT(
        refused_run(parsed(gpt_neox()), [](ModelConfig& c) { c.rotary_channels = 0; }),
        HasSubstr("(rotary_pct) is 4 columns of a head, but this run has 16 columns of a head"));
    EXPECT_THAT(
        refused_run(parsed(gpt_neox()), [](ModelConfig& c) { c.parallel_residual = false; }),
        HasSubstr("use_parallel_residual is true, but this run has false; set --model d"));
}

}  // namespace
}  // namespace vocabpipe::testing
