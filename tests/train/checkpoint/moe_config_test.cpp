// SPDX-License-Identifier: Apache-2.0
// config.json of families with a mixture of experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/checkpoint/config_json.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MoeConfigFile, TakesTransformersDefaults) {
    const ModelConfig mixtral = parsed(rotary("mixtral"));
    EXPECT_EQ(mixtral.moe.experts, 8);
    EXPECT_EQ(mixtral.moe.top_k, 2);
    EXPECT_EQ(mixtral.expert_ffn_hidden_size(), 200);
    EXPECT_TRUE(mixtral.moe.normalize);
    EXPECT_EQ(mixtral.rope.theta, 1e6);
    EXPECT_EQ(mixtral.norm_epsilon, 1e-5F);
    EXPECT_THAT(mixtral.windowed, IsEmpty());
    EXPECT_EQ(mixtral.moe.aux_loss, 0) << "a loss is no part of a model";

    EXPECT_EQ(mixtral.max_position_embeddings, 4096);
    json without_positions = rotary("mixtral");
    without_positions.erase("max_position_embeddings");
    EXPECT_EQ(parsed(without_positions).max_position_embeddings, 131072);

    json keys = rotary("qwen3_moe");
    keys.erase("num_key_value_heads");
    const ModelConfig qwen3 = parsed(keys);
    EXPECT_EQ(qwen3.moe.experts, 128);
    EXPECT_EQ(qwen3.moe.top_k, 8);
    EXPECT_EQ(qwen3.expert_ffn_hidden_size(), 768);
    EXPECT_EQ(qwen3.ffn_hidden_size, 200);
    EXPECT_FALSE(qwen3.moe.normalize);
    EXPECT_TRUE(qwen3.qk_norm);
    EXPECT_EQ(qwen3.kv_heads(), 4);
    EXPECT_EQ(qwen3.head_size(), 12);
    EXPECT_THAT(qwen3.moe.sparse, IsEmpty());
}

TEST(MoeConfigFile, ReadsBothNamesOfTheNumberOfExperts) {
    EXPECT_EQ(parsed(with(rotary("qwen3_moe"), "num_experts", 16)).moe.experts, 16);
    EXPECT_EQ(parsed(with(rotary("qwen3_moe"), "num_local_experts", 24)).moe.experts, 24);
}

TEST(MoeConfigFile, KnowsWhichLayersHaveExperts) {
    const json four = rotary("qwen3_moe");
    EXPECT_THAT(parsed(with(four, "decoder_sparse_step", 2)).moe.sparse,
                ElementsAre(false, true, false, true));
    EXPECT_THAT(parsed(with(four, "mlp_only_layers", {0, 3})).moe.sparse,
                ElementsAre(false, true, true, false));
    EXPECT_THAT(
        parsed(with(with(four, "decoder_sparse_step", 2), "mlp_only_layers", {1})).moe.sparse,
        ElementsAre(false, false, false, true));
}

TEST(MoeConfigFile, PrintsWhatItReads) {
    for (const char* const family : {"mixtral", "qwen3_moe"}) {
        json file = with(rotary(family), "num_local_experts", 6);
        file = with(with(file, "num_experts_per_tok", 3), "sliding_window", 5);
        file = with(with(file, "use_sliding_window", true), "moe_intermediate_size", 40);
        file = with(with(file, "norm_topk_prob", true), "mlp_only_layers", {2});
        const ModelConfig config = parsed(file);
        EXPECT_EQ(config.sliding_window, 5);
        EXPECT_EQ(parsed(printed(config)).moe, config.moe) << family;
    }
}

TEST(MoeConfigFile, ReadsTheSharedExpertAndTheNormsOfOtherFamilies) {
    json keys = with(rotary("qwen2_moe"), "shared_expert_intermediate_size", 24);
    keys = with(with(keys, "moe_intermediate_size", 10), "qkv_bias", false);
    const ModelConfig qwen2 = parsed(keys);
    EXPECT_TRUE(qwen2.moe.shared_expert);
    EXPECT_EQ(qwen2.shared_ffn_hidden_size(), 24);
    EXPECT_EQ(qwen2.moe.experts, 60);
    EXPECT_EQ(qwen2.moe.top_k, 4);
    EXPECT_FALSE(qwen2.qkv_bias);
    EXPECT_EQ(parsed(printed(qwen2)).shared_ffn_hidden_size(), 24);
    EXPECT_EQ(parsed(rotary("qwen2_moe")).shared_ffn_hidden_size(), 5632);
    EXPECT_TRUE(parsed(rotary("qwen2_moe")).qkv_bias);
    EXPECT_THAT(refused(with(keys, "use_sliding_window", true)),
                HasSubstr("use_sliding_window: true is not supported without layer_types"));

    const ModelConfig olmoe = parsed(rotary("olmoe"));
    EXPECT_TRUE(olmoe.qk_norm && !olmoe.qk_norm_by_head && olmoe.pre_norms);
    EXPECT_EQ(olmoe.moe.experts, 64);
    EXPECT_EQ(olmoe.norm_epsilon, 1e-5F);
    EXPECT_EQ(parsed(printed(olmoe)).moe, olmoe.moe);
    EXPECT_THAT(refused(with(rotary("olmoe"), "clip_qkv", 8.0)), HasSubstr("clip_qkv: is not"));
    EXPECT_THAT(refused(with(rotary("olmoe"), "head_dim", 20)), HasSubstr("head_dim: must be"));
}

json dots() {
    json keys = with(with(rotary("dots1"), "n_routed_experts", 8), "num_experts_per_tok", 3);
    return with(with(keys, "n_shared_experts", 2), "moe_intermediate_size", 10);
}

TEST(MoeConfigFile, ReadsTheRouterAndTheLeadingLayersOfDots) {
    const ModelConfig plain = parsed(dots());
    EXPECT_EQ(plain.moe.score, kernels::RouterScore::sigmoid);
    EXPECT_TRUE(plain.moe.correction_bias && plain.moe.shared_expert && plain.qk_norm);
    EXPECT_FALSE(plain.moe.shared_gate);
    EXPECT_EQ(plain.moe.experts, 8);
    EXPECT_EQ(plain.moe.top_k, 3);
    EXPECT_EQ(plain.expert_ffn_hidden_size(), 10);
    EXPECT_EQ(plain.shared_ffn_hidden_size(), 20);
    EXPECT_EQ(plain.moe.scaling, 1);
    EXPECT_EQ(plain.moe.groups, 1);
    EXPECT_FALSE(plain.moe.normalize);
    EXPECT_THAT(plain.moe.sparse, IsEmpty());
    EXPECT_THAT(plain.windowed, IsEmpty()) << "by the default of max_window_layers";
    EXPECT_EQ(plain.moe.bias_rate, 0) << "no part of a model";

    json keys = with(with(dots(), "n_group", 4), "topk_group", 2);
    keys = with(with(keys, "first_k_dense_replace", 1), "routed_scaling_factor", 2.5);
    keys = with(with(keys, "norm_topk_prob", true), "max_window_layers", 2);
    const ModelConfig config = parsed(with(keys, "sliding_window", 5));
    EXPECT_EQ(config.moe.groups, 4);
    EXPECT_EQ(config.moe.top_groups, 2);
    EXPECT_EQ(config.moe.scaling, 2.5F);
    EXPECT_TRUE(config.moe.normalize);
    EXPECT_THAT(config.moe.sparse, ElementsAre(false, true, true, true));
    EXPECT_THAT(config.windowed, ElementsAre(false, false, true, true));
    const ModelConfig again = parsed(printed(config));
    EXPECT_EQ(again.moe, config.moe);
    EXPECT_EQ(again.windowed, config.windowed);
    EXPECT_EQ(parsed(printed(plain)).moe, plain.moe);
}

TEST(MoeConfigFile, RefusesWhatDotsCannotBe) {
    for (const char* const key : {"n_routed_experts", "num_experts_per_tok", "n_shared_experts"}) {
        json keys = dots();
        keys.erase(key);
        EXPECT_THAT(refused(keys), HasSubstr(key));
        EXPECT_THAT(refused(with(keys, key, nullptr)), HasSubstr(key));
    }
    EXPECT_THAT(refused(with(dots(), "num_experts_per_tok", 9)),
                HasSubstr("num_experts_per_tok is 9, but must be at most n_routed_experts 8"));
    EXPECT_THAT(refused(with(dots(), "n_group", 3)), HasSubstr("n_group is 3, but must divide"));
    EXPECT_THAT(refused(with(with(dots(), "n_group", 2), "topk_group", 3)),
                HasSubstr("topk_group is 3, but must be at most n_group 2"));
    EXPECT_THAT(refused(with(with(dots(), "n_group", 4), "topk_group", 1)),
                HasSubstr("num_experts_per_tok is 3, but topk_group's groups have 2 experts"));
    EXPECT_THAT(refused(with(dots(), "first_k_dense_replace", 4)),
                HasSubstr("first_k_dense_replace: 4"));
    EXPECT_THAT(refused_run(parsed(dots()), [](ModelConfig& c) { c.moe.scaling = 2; }),
                HasSubstr("routed_scaling_factor is 1.0, but this run has 2.0; set "
                          "--moe-router-topk-scaling-factor 1"));
    EXPECT_THAT(refused_run(parsed(dots()), [](ModelConfig& c) { c.moe.groups = 2; }),
                HasSubstr("n_group is 1, but this run has 2; set --moe-router-num-groups 1"));
}

TEST(MoeConfigFile, RefusesByNameWhatDoesNotFit) {
    const json file = with(rotary("mixtral"), "num_local_experts", 4);
    EXPECT_THAT(refused(with(file, "num_experts_per_tok", 5)),
                HasSubstr("num_experts_per_tok is 5, but must be at most num_local_experts 4"));
    EXPECT_THAT(refused(with(file, "num_local_experts", 0)), HasSubstr("num_local_experts: 0"));
    EXPECT_THAT(refused(with(file, "num_local_experts", 4097)), HasSubstr("4096"));
    EXPECT_THAT(refused(with(rotary("qwen3_moe"), "mlp_only_layers", {4})),
                HasSubstr("mlp_only_layers"));
    EXPECT_THAT(refused(with(rotary("qwen3_moe"), "decoder_sparse_step", 0)),
                HasSubstr("decoder_sparse_step: 0"));
    EXPECT_THAT(refused(with(rotary("qwen3_moe"), "decoder_sparse_step", 9)),
                HasSubstr("no layer has experts"));
}

TEST(MoeConfigFile, NamesWhatDiffersFromARun) {
    const ModelConfig file = parsed(rotary("qwen3_moe"));
    EXPECT_THAT(refused_run(file, [](ModelConfig& c) { c.moe.experts = 4; }),
                HasSubstr("the number of experts is 128, but this run has 4; set --num-experts "
                          "128"));
    EXPECT_THAT(refused_run(file, [](ModelConfig& c) { c.moe.top_k = 2; }),
                HasSubstr("set --moe-router-topk 8"));
    EXPECT_THAT(refused_run(file, [](ModelConfig& c) { c.moe.ffn_hidden_size = 7; }),
                HasSubstr("set --moe-ffn-hidden-size 768"));
    EXPECT_THAT(refused_run(file, [](ModelConfig& c) { c.moe.normalize = true; }),
                HasSubstr("norm_topk_prob is false, but this run has true"));
    EXPECT_THAT(refused_run(file,
                            [](ModelConfig& c) {
                                c.moe.sparse = {true, false, true, true};
                            }),
                HasSubstr("is layers 0, 1, 2, 3, but this run has layers 0, 2, 3"));
}

}  // namespace
}  // namespace vocabpipe::testing
