// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/families.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/families/other_families.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& family) {
    ModelConfig config;
    try {
        set_family(config, family);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "set";
}

TEST(Families, AreFoundByName) {
    for (const std::string& name : model_families()) {
        ASSERT_NE(find_family(name), nullptr) << name;
        EXPECT_EQ(model_family(name).name, name);
        ModelConfig config;
        set_family(config, name);
        EXPECT_EQ(config.family, name);
        config.check();
    }
    EXPECT_EQ(find_family("Llama"), nullptr);
}

TEST(Families, RefuseAnotherNameWithTheNearestOneAndWhatIsMissing) {
    EXPECT_EQ(refusal_of("lama"),
              "--model-type lama: must be one of " + known_families() + "; did you mean llama?");
    EXPECT_THAT(refusal_of("deepseek_v2"),
                HasSubstr("; the nearest is deepseek_v3, missing is softmax scores of experts"));
    EXPECT_THAT(refusal_of("llama4_text"),
                HasSubstr("; the nearest is llama, missing is a mixture of experts, attention in "
                          "chunks, rotary positions of neighbouring columns, norms of q and k "
                          "after them, and a temperature of attention"));
    EXPECT_EQ(refusal_of("resnet"), "--model-type resnet: must be one of " + known_families());
    ModelConfig config;
    config.family = "lama";
    EXPECT_THROW(config.check(), UsageError);
}

TEST(Families, OfGptNeoxTurnAQuarterOfAHeadInPairsButAtLeastOne) {
    const auto turned = [](int64_t head_size) {
        ModelConfig config;
        config.num_attention_heads = 2;
        config.hidden_size = 2 * head_size;
        set_family(config, "gpt_neox");
        return config.rotary_channels;
    };
    EXPECT_EQ(turned(64), 16);
    EXPECT_EQ(turned(20), 4) << "of 5";
    EXPECT_EQ(turned(4), 2);
}

TEST(Families, OfOlmoeTakeTheSizeOfAHeadOnlyWhereItIsTheirs) {
    ModelConfig config;
    set_family(config, "olmoe");
    const int64_t theirs = config.hidden_size / config.num_attention_heads;
    config.kv_channels = theirs;
    EXPECT_NO_THROW(config.check());
    config.kv_channels = 2 * theirs;
    EXPECT_THROW(config.check(), UsageError);
}

// transformers' own defaults, by the classes of its configurations.
TEST(Families, FillInWhatAConfigJsonLeavesOut) {
    struct Row {
        const char* family;
        int64_t positions, kv_heads, head_size;
        double epsilon, rope_theta;
        bool tied;
        kernels::Activation activation;
    };
    using enum kernels::Activation;
    for (const Row& row : {
             Row{"gemma", 8192, 16, 256, 1e-6, 1e4, true, gelu_tanh},
             Row{"gemma2", 8192, 4, 256, 1e-6, 1e4, true, gelu_tanh},
             Row{"llama", 2048, 0, 0, 1e-6, 1e4, false, silu},
             Row{"mistral", 131072, 8, 0, 1e-6, 1e4, false, silu},
             Row{"olmo2", 2048, 0, 0, 1e-5, 1e4, false, silu},
             Row{"phi3", 4096, 0, 0, 1e-5, 1e4, false, silu},
             Row{"qwen2", 32768, 32, 0, 1e-6, 1e4, false, silu},
             Row{"qwen3", 32768, 32, 128, 1e-6, 1e4, false, silu},
             Row{"smollm3", 32768, 4, 0, 1e-6, 2e6, true, silu},
         }) {
        SCOPED_TRACE(row.family);
        const ModelConfig config =
            parse_model_config(R"({"num_hidden_layers": 4, "hidden_size": 2048,
                "num_attention_heads": 64, "intermediate_size": 128, "vocab_size": 500,
                "model_type": ")" + std::string(row.family) +
                                   "\"}",
                               "config.json");
        EXPECT_EQ(config.max_position_embeddings, row.positions);
        EXPECT_EQ(config.num_query_groups, row.kv_heads);
        EXPECT_EQ(config.kv_channels, row.head_size);
        EXPECT_EQ(config.norm_epsilon, static_cast<float>(row.epsilon));
        EXPECT_EQ(config.rope.theta, row.rope_theta);
        EXPECT_EQ(config.tied, row.tied);
        EXPECT_EQ(config.activation, row.activation);
    }
}

TEST(Families, OthersAreNoneOfThemAndNamed) {
    std::set<std::string_view> names;
    for (const OtherFamily& other : other_families()) {
        EXPECT_TRUE(names.insert(other.name).second) << other.name;
        EXPECT_EQ(find_family(other.name), nullptr) << other.name << ": remove its row";
        EXPECT_NE(find_family(other.nearest), nullptr) << other.name;
    }
}

TEST(Families, OfTheSamePartsAreOne) {
    std::vector<MegatronParts> seen;
    for (const ModelFamily& family : all_families()) {
        if (!family.parts) continue;
        EXPECT_EQ(std::ranges::find(seen, *family.parts), seen.end()) << family.name;
        seen.push_back(*family.parts);
        ModelConfig config;
        set_family(config, family.name);
        EXPECT_EQ(family.parts->swiglu,
                  config.gated && config.activation == kernels::Activation::silu);
        EXPECT_EQ(family.parts->rms_norm, config.normalization == Normalization::rms_norm);
        EXPECT_EQ(family.parts->rope, !config.learned_positions);
        EXPECT_EQ(family.parts->experts, family.has_experts());
        EXPECT_EQ(family.parts->latents, family.has_latents());
        EXPECT_EQ(family.parts->latents, config.has_latents());
    }
}

}  // namespace
}  // namespace vocabpipe::testing
