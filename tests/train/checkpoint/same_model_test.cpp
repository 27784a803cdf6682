// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>
#include <variant>

#include "src/model/config/fields.hpp"
#include "tests/train/checkpoint/config_json.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SameModel, NamesKeyBothValuesAndTheFlagWhereTheRunIsAnotherModel) {
    const auto against = [](const ModelConfig& file) {
        return [file](auto change) { return refused_run(file, change); };
    };
    const auto gpt2_run = against(parsed(gpt2()));
    EXPECT_EQ(gpt2_run([](ModelConfig& c) { c.hidden_size = 64; }),
              "d/config.json: n_embd is 768, but this run has 64; set --hidden-size 768");
    EXPECT_THAT(gpt2_run([](ModelConfig& c) { c.num_layers = 2; }),
                HasSubstr("set --num-layers 12"));
    EXPECT_THAT(gpt2_run([](ModelConfig& c) { c.vocab_size = 2; }),
                HasSubstr("--vocab-size 50257"));
    EXPECT_THAT(gpt2_run([](ModelConfig& c) { c.max_position_embeddings = 2; }),
                HasSubstr("--max-position-embeddings 1024"));
    EXPECT_THAT(gpt2_run([](ModelConfig& c) { c.num_attention_heads = 2; }),
                HasSubstr("--num-attention-heads 12"));
    EXPECT_THAT(gpt2_run([](ModelConfig& c) { c.ffn_hidden_size = 2; }),
                HasSubstr("--ffn-hidden-size 3072"));
    EXPECT_THAT(gpt2_run([](ModelConfig& c) { c.tied = false; }),
                HasSubstr("remove --untie-embeddings-and-output-weights"));
    EXPECT_THAT(
        gpt2_run([](ModelConfig& c) { c.norm_epsilon = 1e-6F; }),
        HasSubstr("layer_norm_epsilon is 1e-05, but this run has 1e-06; set --norm-epsilon"));

    json gemma = with(rotary("gemma2"), "sliding_window", 7);
    const auto run = against(parsed(gemma));
    EXPECT_THAT(run([](ModelConfig& c) { set_family(c, "qwen3"); }),
                HasSubstr("model_type is gemma2, but this run has qwen3; set --model-type gemma2"));
    EXPECT_THAT(
        run([](ModelConfig& c) { c.num_query_groups = 2; }),
        HasSubstr("num_key_value_heads is 4, but this run has 2; set --num-query-groups 4"));
    EXPECT_THAT(run([](ModelConfig& c) { c.kv_channels = 8; }), HasSubstr("--kv-channels 256"));
    EXPECT_THAT(
        run([](ModelConfig& c) { c.rope.theta = 5; }),
        HasSubstr("rope_theta is 10000.0, but this run has 5.0; set --rotary-base 10000.0"));
    EXPECT_THAT(run([](ModelConfig& c) { c.rope.scaling = RopeScaling::linear; }),
                HasSubstr("rope_scaling is null, but this run has {"));
    EXPECT_THAT(run([](ModelConfig& c) { c.qkv_bias = true; }),
                HasSubstr("attention_bias is false, but this run has true; set --model d, which "
                          "reads the whole model from the file"));
    EXPECT_THAT(run([](ModelConfig& c) { c.attention_softcap = 1; }),
                HasSubstr("attn_logit_softcapping is 50.0, but this run has 1.0; set --model d"));
    EXPECT_THAT(run([](ModelConfig& c) { c.logit_softcap = 0; }),
                HasSubstr("final_logit_softcapping"));
    EXPECT_THAT(run([](ModelConfig& c) { c.attention_scale = 1; }),
                HasSubstr("query_pre_attn_scalar"));
    EXPECT_THAT(run([](ModelConfig& c) { c.activation = kernels::Activation::silu; }),
                HasSubstr("hidden_activation is GELU's tanh form, but this run has silu"));
    EXPECT_THAT(run([](ModelConfig& c) { c.windowed[0] = false; }),
                AllOf(HasSubstr("is a window of 7 in layers 0, 2"),
                      HasSubstr("this run has a window of 7 in layers 2")));
    EXPECT_THAT(run([](ModelConfig& c) { c.sliding_window = 0; }), HasSubstr("--sliding-window 7"));
    EXPECT_THAT(run([](ModelConfig& c) { c.windowed.clear(); }), HasSubstr("has no window"));
    EXPECT_THAT(
        against(parsed(rotary("gemma3_text")))([](ModelConfig& c) { c.windowed_rope->theta = 5; }),
        HasSubstr("rope_local_base_freq is 10000.0, but this run has 5.0; set --model d"));
    EXPECT_THAT(against(parsed(rotary("llama")))(
                    [](ModelConfig& c) { c.softmax_type = SoftmaxType::learnable; }),
                HasSubstr("softmax_type is vanilla, but this run has learnable; set "
                          "--softmax-type vanilla"));
    EXPECT_THAT(against(parsed(rotary("llama")))([](ModelConfig& c) { c.mlp_bias = true; }),
                HasSubstr("mlp_bias is false"));
}

/// Another value of a bool or a number; false for a field of another type.
bool change(const ModelField& field) {
    return std::visit(
        []<typename Value>(const Value& value) {
            if constexpr (std::is_pointer_v<Value>) {
                using Member = std::remove_pointer_t<Value>;
                if constexpr (std::is_same_v<Member, bool>) {
                    if (value != nullptr) *value = !*value;
                    return value != nullptr;
                } else if constexpr (std::is_arithmetic_v<Member>) {
                    *value += 1;
                    return true;
                }
            }
            return false;
        },
        field.flag.value);
}

TEST(SameModel, NoticesEveryFieldOfAnArchitectureAndNoOther) {
    for (const char* const type : {"gemma2", "qwen3_moe"}) {
        const ModelConfig file = parsed(rotary(type));
        ModelConfig model = file;
        const size_t rows = model_fields(model).size();
        int noticed = 0;
        for (size_t row = 0; row < rows; ++row) {
            ModelConfig run = file;
            const ModelField field = model_fields(run)[row];
            if (!change(field)) continue;
            const bool compared = field.is_architecture() && !field.value_text().empty();
            const auto compare = [&] { check_same_model(file, "d/config.json", run); };
            if (compared) {
                EXPECT_THROW(compare(), InputFileError) << field.member;
                ++noticed;
            } else {
                EXPECT_NO_THROW(compare()) << field.member;
            }
        }
        EXPECT_GT(noticed, 20) << type;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
