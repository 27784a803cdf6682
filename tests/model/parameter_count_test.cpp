// SPDX-License-Identifier: Apache-2.0
// Parameters of models against their cards, weight files and sizes in transformers.
#include "vocabpipe/parameter_count.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/published/published_models.hpp"

namespace vocabpipe::testing {
namespace {

using nlohmann::json;

ModelConfig config_of_published(const std::string& name) {
    return parse_model_config(named_model(name).text, name);
}
int64_t count_of(const std::string& name) {
    return parameter_count(config_of_published(name));
}
int64_t count_in(const json& file) {
    return parameter_count(parse_model_config(file.dump(), "config.json"));
}

TEST(ParameterCount, OfPublishedModelsIsThatOfTheirCards) {
    // As their model cards and weight files state; GPT-3's "175.0 B" (table 2.1) is rounded from a
    // count that leaves something out, so it gets half a percent.
    EXPECT_EQ(count_of("llama-3-8b"), 8'030'261'248);
    EXPECT_EQ(count_of("llama-3-70b"), 70'553'706'496);
    EXPECT_EQ(count_of("llama-3-405b"), 405'853'388'800);
    EXPECT_EQ(count_of("gemma-2-9b"), 9'241'705'984);
    EXPECT_EQ(count_of("qwen-2.5-7b"), 7'615'616'512);
    EXPECT_EQ(count_of("llama-3.2-1b"), 1'235'814'400);
    EXPECT_EQ(count_of("qwen-3-8b"), 8'190'735'360);
    EXPECT_EQ(count_of("gemma-3-1b"), 999'885'952);
    EXPECT_EQ(count_of("phi-4"), 14'659'507'200);
    EXPECT_EQ(count_of("mixtral-8x7b"), 46'702'792'704);
    EXPECT_EQ(count_of("qwen3-30b-a3b"), 30'532'122'624);
    EXPECT_NEAR(static_cast<double>(count_of("gpt3-175b")), 175.0e9, 0.5e9);
    // "671B of the main model", 37 B of them active; its depth's own parameters by hand: a layer,
    // the product of two norms, and its norm.
    ModelConfig deepseek = config_of_published("deepseek-v3");
    const int64_t with_depth = parameter_count(deepseek);
    deepseek.mtp_num_layers = 0;
    EXPECT_EQ(parameter_count(deepseek), 671'026'419'200);
    EXPECT_NEAR(static_cast<double>(active_parameter_count(deepseek)), 37e9, 0.6e9);
    constexpr int64_t kHidden = 7168, kAttention = 187'107'328;
    constexpr int64_t kExperts = 257 * 3 * kHidden * 2048LL + 256 * kHidden + 256;
    EXPECT_EQ(with_depth - parameter_count(deepseek),
              kAttention + kExperts + 2 * kHidden * kHidden + 5 * kHidden);
}

TEST(ParameterCount, OfExpertsAllCountAndTheOnesOfATokenAreActive) {
    // "12.9 B active" and "3.3 B activated" in their model cards.
    const auto active = [](const ModelConfig& config) {
        return static_cast<double>(active_parameter_count(config));
    };
    EXPECT_NEAR(active(config_of_published("mixtral-8x7b")), 12.9e9, 0.05e9);
    EXPECT_NEAR(active(config_of_published("qwen3-30b-a3b")), 3.3e9, 0.06e9);
    ModelConfig config = config_of_published("mixtral-8x7b");
    const int64_t all = parameter_count(config);
    MoeConfig& moe = config.moe;
    moe.sparse.assign(32, false);
    const int64_t none = parameter_count(config);
    EXPECT_EQ(active_parameter_count(config), none);
    std::fill_n(moe.sparse.begin(), 8, true);
    const int64_t mlps = (32 - 8) * (3 * 4096 * 14336LL);
    const int64_t layers = 8 * (8 * (3 * 4096 * 14336LL) + 4096 * 8);
    EXPECT_EQ(parameter_count(config), none - 32 * (3 * 4096 * 14336LL) + mlps + layers);
    EXPECT_EQ(parameter_count(config), none + (all - none) / 4);
    moe.shared_expert = true;
    moe.shared_ffn_hidden_size = 100;
    moe.correction_bias = true;
    EXPECT_EQ(parameter_count(config), none + (all - none) / 4 + 8 * (3 * 4096 * 100 + 4096 + 8));
    EXPECT_EQ(active_parameter_count(config), parameter_count(config) - 8 * 6 * 3 * 4096 * 14336LL);
}

TEST(ParameterCount, OfGpt2HasATiedWeightOnce) {
    ModelConfig config;
    config.num_layers = 12;
    config.hidden_size = 768;
    config.ffn_hidden_size = 3072;
    config.num_attention_heads = 12;
    config.max_position_embeddings = 1024;
    config.vocab_size = 50257;
    EXPECT_EQ(parameter_count(config), 124'439'808);
    config.tied = false;
    EXPECT_EQ(parameter_count(config), 124'439'808 + 768 * 50257);
}

TEST(ParameterCount, OfFilesIsThatOfTheirModels) {
    const json qwen3{{"model_type", "qwen3"},       {"vocab_size", 151936},
                     {"hidden_size", 1024},         {"intermediate_size", 3072},
                     {"num_hidden_layers", 28},     {"num_attention_heads", 16},
                     {"num_key_value_heads", 8},    {"tie_word_embeddings", true},
                     {"use_sliding_window", false}, {"sliding_window", nullptr}};
    EXPECT_EQ(count_in(qwen3), 596'049'920);  // Qwen3-0.6B's weight file
    const json olmo2{{"model_type", "olmo2"},     {"vocab_size", 100352},
                     {"hidden_size", 4096},       {"intermediate_size", 11008},
                     {"num_hidden_layers", 32},   {"num_attention_heads", 32},
                     {"num_key_value_heads", 32}, {"tie_word_embeddings", false}};
    EXPECT_EQ(count_in(olmo2), 7'298'617'344);  // of OLMo-2-1124-7B's sizes in transformers
    const json phi3{{"model_type", "phi3"},      {"vocab_size", 32064},
                    {"hidden_size", 3072},       {"intermediate_size", 8192},
                    {"num_hidden_layers", 32},   {"num_attention_heads", 32},
                    {"num_key_value_heads", 32}, {"tie_word_embeddings", false},
                    {"rope_scaling", nullptr},   {"sliding_window", 2047}};
    EXPECT_EQ(count_in(phi3), 3'821'079'552);  // Phi-3-mini's weight file
    const json smollm3{{"model_type", "smollm3"},  {"vocab_size", 128256},
                       {"hidden_size", 2048},      {"intermediate_size", 11008},
                       {"num_hidden_layers", 36},  {"num_attention_heads", 16},
                       {"num_key_value_heads", 4}, {"tie_word_embeddings", true}};
    EXPECT_EQ(count_in(smollm3), 3'075'098'624);  // of SmolLM3-3B's sizes in transformers
    const json pythia{{"model_type", "gpt_neox"}, {"vocab_size", 50304},
                      {"hidden_size", 2560},      {"intermediate_size", 10240},
                      {"num_hidden_layers", 32},  {"num_attention_heads", 32}};
    EXPECT_EQ(count_in(pythia), 2'775'208'960);  // as Pythia-2.8B's model card says
}

}  // namespace
}  // namespace vocabpipe::testing
