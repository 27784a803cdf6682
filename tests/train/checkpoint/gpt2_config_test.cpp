// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/gpt2_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/train/checkpoint/training_state.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json gpt2() {
    return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_positions", 1024},
            {"n_embd", 768},        {"n_layer", 12},       {"n_head", 12}};
}

TEST(Gpt2Config, ReadsTheSmallestWithItsDefaults) {
    const ModelConfig c = parse_gpt2_config(gpt2().dump(), "config.json");
    EXPECT_EQ(c.num_layers, 12);
    EXPECT_EQ(c.hidden_size, 768);
    EXPECT_EQ(c.ffn_hidden_size, 3072);
    EXPECT_EQ(c.num_attention_heads, 12);
    EXPECT_EQ(c.max_position_embeddings, 1024);
    EXPECT_EQ(c.vocab_size, 50257);
    EXPECT_TRUE(c.tied);
    EXPECT_EQ(c.norm_epsilon, 1e-5F);
}

TEST(Gpt2Config, PrintsWhatItReads) {
    ModelConfig config;
    config.num_layers = 3;
    config.hidden_size = 48;
    config.ffn_hidden_size = 100;
    config.num_attention_heads = 6;
    config.vocab_size = 77;
    config.max_position_embeddings = 32;
    config.tied = false;
    config.dtype = DType::bf16;
    const std::string text = print_gpt2_config(config);
    EXPECT_NO_THROW(check_same_model(parse_gpt2_config(text, "again"), "again", config));
    EXPECT_EQ(json::parse(text).at("torch_dtype"), "bfloat16");
    EXPECT_THAT(text, HasSubstr("\"layer_norm_epsilon\": 1e-05"));
}

TEST(Gpt2Config, RefusesByNameWhatIsNotComputed) {
    const auto with = [](const char* key, const json& value) {
        json config = gpt2();
        config[key] = value;
        return message_of<InputFileError>(
            [&] { (void)parse_gpt2_config(config.dump(), "d/config.json"); });
    };
    EXPECT_THAT(with("model_type", "llama"), HasSubstr("d/config.json: model_type: is not gpt2"));
    EXPECT_THAT(with("activation_function", "relu"), HasSubstr("activation_function: is not"));
    EXPECT_THAT(with("activation_function", "gelu"), HasSubstr("must be gelu_new"));
    EXPECT_THAT(with("scale_attn_by_inverse_layer_idx", true),
                HasSubstr("scale_attn_by_inverse_layer_idx: true is not computed"));
    EXPECT_THAT(with("scale_attn_weights", false), HasSubstr("scale_attn_weights: false"));
    EXPECT_THAT(with("add_cross_attention", true), HasSubstr("add_cross_attention"));
    EXPECT_THAT(with("quantization_config", json::object()), HasSubstr("quantized"));
    EXPECT_THAT(with("n_layer", 0), HasSubstr("n_layer: 0: must be an integer from 1"));
    EXPECT_THAT(with("n_embd", "wide"), HasSubstr("n_embd: must be an integer"));
    EXPECT_THAT(with("vocab_size", -1), HasSubstr("vocab_size: -1"));
    EXPECT_THAT(with("layer_norm_epsilon", "small"), HasSubstr("layer_norm_epsilon"));
    EXPECT_THAT(with("tie_word_embeddings", 1), HasSubstr("tie_word_embeddings: must be true"));
    EXPECT_THAT(message_of<InputFileError>([] { (void)parse_gpt2_config("{", "c"); }),
                HasSubstr("c: not valid JSON"));
}

TEST(Gpt2Config, NamesKeyBothValuesAndTheFlagWhereTheRunIsAnotherModel) {
    const ModelConfig file = parse_gpt2_config(gpt2().dump(), "c");
    const auto with = [&](auto change) {
        ModelConfig run = file;
        change(run);
        return message_of<InputFileError>([&] { check_same_model(file, "d/config.json", run); });
    };
    EXPECT_EQ(with([](ModelConfig& c) { c.hidden_size = 64; }),
              "d/config.json: n_embd is 768, this run has 64; give --hidden-size 768");
    EXPECT_THAT(with([](ModelConfig& c) { c.num_layers = 2; }), HasSubstr("give --num-layers 12"));
    EXPECT_THAT(with([](ModelConfig& c) { c.vocab_size = 2; }), HasSubstr("--vocab-size 50257"));
    EXPECT_THAT(with([](ModelConfig& c) { c.max_position_embeddings = 2; }),
                HasSubstr("--max-position-embeddings 1024"));
    EXPECT_THAT(with([](ModelConfig& c) { c.num_attention_heads = 2; }),
                HasSubstr("--num-attention-heads 12"));
    EXPECT_THAT(with([](ModelConfig& c) { c.ffn_hidden_size = 2; }),
                HasSubstr("--ffn-hidden-size 3072"));
    EXPECT_THAT(with([](ModelConfig& c) { c.tied = false; }),
                HasSubstr("leave out --untie-embeddings-and-output-weights"));
    EXPECT_THAT(with([](ModelConfig& c) { c.norm_epsilon = 1e-6F; }),
                HasSubstr("layer_norm_epsilon is 1e-05, this run has 1e-06"));
}

TEST(TrainingState, ReadsBackWhatItPrintsAndNoticesEveryChange) {
    const TrainingState state{.step = 7,
                              .consumed_samples = 56,
                              .seq_length = 32,
                              .seed = 18446744073709551615U,
                              .dtype = "bf16",
                              .flags = {"--lr 0.01"},
                              .files = {{"a", {.bytes = 12, .head = 3, .tensors = {{"w", 4}}}}}};
    const std::string text = print_training_state(state);
    const TrainingState again = parse_training_state(text, "t");
    EXPECT_EQ(again.step, 7);
    EXPECT_EQ(again.consumed_samples, 56);
    EXPECT_EQ(again.seed, state.seed);
    EXPECT_EQ(again.flags, state.flags);
    EXPECT_EQ(again.files.at("a").tensors.at("w"), 4U);
    EXPECT_EQ(print_training_state(again), text);
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ' ' || text[i] == '\n') continue;
        std::string other = text;
        other[i] = static_cast<char>(other[i] ^ 1);
        EXPECT_THROW((void)parse_training_state(other, "t"), InputFileError) << i;
    }
    EXPECT_THAT(message_of<InputFileError>([&] {
                    std::string other = text;
                    other.replace(other.find("\"step\": 7"), 9, "\"step\": 8");
                    (void)parse_training_state(other, "t");
                }),
                HasSubstr("t: is damaged"));
}

}  // namespace
}  // namespace vocabpipe::testing
