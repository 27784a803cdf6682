// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/model_config_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/model/families/families.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "tests/train/checkpoint/config_json.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ModelConfigFile, ReadsTheSmallestGpt2WithItsDefaults) {
    const ModelConfig c = parsed(gpt2());
    EXPECT_EQ(c.family, "gpt2");
    EXPECT_EQ(c.num_layers, 12);
    EXPECT_EQ(c.hidden_size, 768);
    EXPECT_EQ(c.ffn_hidden_size, 3072);
    EXPECT_EQ(c.num_attention_heads, 12);
    EXPECT_EQ(c.max_position_embeddings, 1024);
    EXPECT_EQ(c.vocab_size, 50257);
    EXPECT_TRUE(c.tied);
    EXPECT_EQ(c.norm_epsilon, 1e-5F);
    EXPECT_TRUE(c.learned_positions);
}

TEST(ModelConfigFile, TakesTransformersDefaultsOfEveryFamily) {
    json minimal = rotary("llama");
    minimal.erase("num_key_value_heads");
    const ModelConfig llama = parsed(minimal);
    EXPECT_EQ(llama.kv_heads(), 8);
    EXPECT_EQ(llama.head_size(), 12);
    EXPECT_EQ(llama.norm_epsilon, 1e-6F);
    EXPECT_EQ(llama.rope, Rope{});
    EXPECT_FALSE(llama.tied);
    EXPECT_FALSE(llama.qkv_bias || llama.attention_output_bias || llama.mlp_bias);

    const ModelConfig qwen2 = parsed(rotary("qwen2"));
    EXPECT_EQ(qwen2.kv_heads(), 4);
    EXPECT_TRUE(qwen2.qkv_bias);
    EXPECT_FALSE(qwen2.attention_output_bias);
    EXPECT_THAT(qwen2.windowed, IsEmpty());

    const ModelConfig qwen3 = parsed(rotary("qwen3"));
    EXPECT_EQ(qwen3.head_size(), 128);
    EXPECT_TRUE(qwen3.qk_norm);

    json mistral_keys = rotary("mistral");
    mistral_keys.erase("num_key_value_heads");
    mistral_keys.erase("max_position_embeddings");
    const ModelConfig mistral = parsed(mistral_keys);
    EXPECT_EQ(mistral.num_query_groups, 0);  // 8, as many as of queries
    EXPECT_EQ(mistral.max_position_embeddings, 131072);
    EXPECT_EQ(mistral.sliding_window, 4096);
    EXPECT_THAT(mistral.windowed, ElementsAre(true, true, true, true));

    const ModelConfig olmo2 = parsed(rotary("olmo2"));
    EXPECT_EQ(olmo2.norm_epsilon, 1e-5F);
    EXPECT_FALSE(olmo2.pre_norms);
    EXPECT_TRUE(olmo2.post_norms);
    EXPECT_TRUE(olmo2.qk_norm);
    EXPECT_FALSE(olmo2.qk_norm_by_head);
    EXPECT_FALSE(olmo2.tied || olmo2.qkv_bias || olmo2.attention_output_bias);

    json phi3_keys = rotary("phi3");
    phi3_keys.erase("num_key_value_heads");
    phi3_keys.erase("max_position_embeddings");
    const ModelConfig phi3 = parsed(phi3_keys);
    EXPECT_EQ(phi3.num_query_groups, 0);  // 8, as many as of queries
    EXPECT_EQ(phi3.head_size(), 12);
    EXPECT_EQ(phi3.max_position_embeddings, 4096);
    EXPECT_EQ(phi3.norm_epsilon, 1e-5F);
    EXPECT_EQ(phi3.rope, Rope{});
    EXPECT_THAT(phi3.windowed, IsEmpty());
    EXPECT_FALSE(phi3.tied || phi3.qkv_bias || phi3.attention_output_bias || phi3.mlp_bias);

    const ModelConfig first_gemma = parsed(with(rotary("gemma"), "hidden_act", "gelu"));
    EXPECT_EQ(first_gemma.activation, kernels::Activation::gelu_tanh);
    EXPECT_EQ(first_gemma.head_size(), 256);
    EXPECT_TRUE(first_gemma.tied);
    EXPECT_FALSE(first_gemma.post_norms);
    EXPECT_EQ(first_gemma.attention_softcap, 0);
    EXPECT_EQ(first_gemma.norm_weight_offset, 1);
    EXPECT_EQ(first_gemma.embedding_scale, std::sqrt(96.0F));
    EXPECT_THAT(first_gemma.windowed, IsEmpty());

    minimal["model_type"] = "gemma2";
    const ModelConfig gemma = parsed(minimal);
    EXPECT_EQ(gemma.kv_heads(), 4);
    EXPECT_EQ(gemma.head_size(), 256);
    EXPECT_TRUE(gemma.tied);
    EXPECT_EQ(gemma.attention_softcap, 50);
    EXPECT_EQ(gemma.logit_softcap, 30);
    EXPECT_EQ(gemma.attention_scale, 0);  // 1 / sqrt(256), which is the usual one here
    EXPECT_EQ(gemma.sliding_window, 4096);
    EXPECT_THAT(gemma.windowed, ElementsAre(true, false, true, false));
    EXPECT_EQ(gemma.embedding_scale, std::sqrt(96.0F));
    EXPECT_EQ(gemma.activation, kernels::Activation::gelu_tanh);

    json gemma3_keys = rotary("gemma3_text");
    gemma3_keys["num_hidden_layers"] = 7;
    const ModelConfig gemma3 = parsed(gemma3_keys);
    EXPECT_EQ(gemma3.head_size(), 256);
    EXPECT_TRUE(gemma3.tied && gemma3.post_norms && gemma3.qk_norm && gemma3.qk_norm_by_head);
    EXPECT_EQ(gemma3.attention_softcap, 0);
    EXPECT_EQ(gemma3.logit_softcap, 0);
    EXPECT_EQ(gemma3.attention_scale, 0);
    EXPECT_EQ(gemma3.sliding_window, 4096);
    EXPECT_THAT(gemma3.windowed, ElementsAre(true, true, true, true, true, false, true));
    EXPECT_EQ(gemma3.rope, Rope{.theta = 1e6});
    EXPECT_EQ(gemma3.windowed_rope, Rope{.theta = 1e4});
    EXPECT_EQ(gemma3.norm_weight_offset, 1);
    EXPECT_EQ(gemma3.embedding_scale, std::sqrt(96.0F));
    gemma3_keys.erase("max_position_embeddings");
    EXPECT_EQ(parsed(gemma3_keys).max_position_embeddings, 131072);
}

TEST(ModelConfigFile, ReadsWhatEveryFamilyAddsAndPrintsIt) {
    const ModelConfig llama = parsed(with(
        with(with(rotary("llama"), "attention_bias", true), "mlp_bias", true), "head_dim", 32));
    EXPECT_TRUE(llama.qkv_bias && llama.attention_output_bias && llama.mlp_bias);
    EXPECT_EQ(llama.query_columns(), 256);
    EXPECT_EQ(printed(llama).at("head_dim"), 32);

    json qwen = rotary("qwen2");
    qwen["use_sliding_window"] = true;
    qwen["sliding_window"] = 128;
    qwen["max_window_layers"] = 3;
    const ModelConfig late = parsed(qwen);
    EXPECT_THAT(late.windowed, ElementsAre(false, false, false, true));
    EXPECT_EQ(late.window(3), 128);
    EXPECT_EQ(printed(late).at("max_window_layers"), 3);
    qwen["layer_types"] = {"full_attention", "sliding_attention", "full_attention",
                           "full_attention"};
    EXPECT_THAT(parsed(qwen).windowed, ElementsAre(false, true, false, false));
    EXPECT_EQ(printed(parsed(qwen)).at("layer_types"), qwen.at("layer_types"));

    EXPECT_TRUE(parsed(with(rotary("qwen3"), "attention_bias", true)).attention_output_bias);

    const ModelConfig olmo2 = parsed(with(rotary("olmo2"), "attention_bias", true));
    EXPECT_TRUE(olmo2.qkv_bias && olmo2.attention_output_bias);
    EXPECT_EQ(printed(olmo2).at("attention_bias"), true);

    const ModelConfig mistral = parsed(with(rotary("mistral"), "sliding_window", 7));
    EXPECT_EQ(mistral.window(3), 7);
    EXPECT_EQ(printed(mistral).at("sliding_window"), 7);
    const ModelConfig newer = parsed(with(rotary("mistral"), "sliding_window", nullptr));
    EXPECT_THAT(newer.windowed, IsEmpty());
    EXPECT_TRUE(printed(newer).at("sliding_window").is_null());

    const ModelConfig phi3 = parsed(with(rotary("phi3"), "sliding_window", 7));
    EXPECT_EQ(phi3.window(3), 7);
    EXPECT_EQ(printed(phi3).at("sliding_window"), 7);
    EXPECT_TRUE(printed(parsed(rotary("phi3"))).at("sliding_window").is_null());

    // Without a window transformers' Gemma 2 still computes with the number.
    const ModelConfig windowless = parsed(with(rotary("gemma2"), "sliding_window", nullptr));
    EXPECT_THAT(windowless.windowed, IsEmpty());
    EXPECT_EQ(printed(windowless).at("sliding_window"), 4096);

    json gemma = rotary("gemma2");
    gemma["query_pre_attn_scalar"] = 144;
    gemma["attn_logit_softcapping"] = nullptr;
    gemma["final_logit_softcapping"] = 12.5;
    gemma["sliding_window"] = 7;
    const ModelConfig capped = parsed(gemma);
    EXPECT_EQ(capped.attention_scale, 1 / 12.0F);
    EXPECT_EQ(capped.attention_softcap, 0);
    EXPECT_EQ(capped.logit_softcap, 12.5F);
    EXPECT_EQ(capped.window(2), 7);
    EXPECT_EQ(printed(capped).at("query_pre_attn_scalar"), 144);
    EXPECT_TRUE(printed(capped).at("attn_logit_softcapping").is_null());

    gemma["model_type"] = "gemma3_text";
    gemma["sliding_window_pattern"] = 3;
    const ModelConfig gemma3 = parsed(gemma);
    EXPECT_EQ(gemma3.attention_scale, 1 / 12.0F);
    EXPECT_EQ(gemma3.logit_softcap, 12.5F);
    EXPECT_EQ(gemma3.window(3), 7);
    EXPECT_THAT(gemma3.windowed, ElementsAre(true, true, false, true));
    EXPECT_EQ(printed(gemma3).at("layer_types"), json({"sliding_attention", "sliding_attention",
                                                       "full_attention", "sliding_attention"}));
    gemma["layer_types"] = {"full_attention", "full_attention", "full_attention",
                            "sliding_attention"};
    EXPECT_THAT(parsed(gemma).windowed, ElementsAre(false, false, false, true));
}

TEST(ModelConfigFile, ReadsRotaryPositionsInOldAndNewKeys) {
    const json llama3 = {{"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 512}};
    const Rope expected{.theta = 5e5,
                        .scaling = RopeScaling::llama3,
                        .factor = 8,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_positions = 512};
    json old = with(rotary("llama"), "rope_theta", 500000.0);
    old["rope_scaling"] = with(llama3, "type", "llama3");
    EXPECT_EQ(parsed(old).rope, expected);
    json now = rotary("llama");
    now["rope_parameters"] = with(with(llama3, "rope_type", "llama3"), "rope_theta", 500000.0);
    EXPECT_EQ(parsed(now).rope, expected);
    EXPECT_EQ(printed(parsed(now)).at("rope_scaling"), with(llama3, "rope_type", "llama3"));

    const auto scaling = [](json value) {
        return parsed(with(rotary("qwen2"), "rope_scaling", std::move(value))).rope;
    };
    EXPECT_EQ(scaling({{"rope_type", "default"}}), Rope{});
    EXPECT_EQ(scaling({{"type", "linear"}, {"factor", 2}}),
              (Rope{.scaling = RopeScaling::linear, .factor = 2}));
    EXPECT_EQ(scaling({{"type", "dynamic"}, {"factor", 3}}),
              (Rope{.scaling = RopeScaling::dynamic, .factor = 3, .original_positions = 4096}));
    EXPECT_EQ(scaling({{"type", "yarn"}, {"factor", 4}, {"truncate", false}, {"mscale", 0.7}}),
              (Rope{.scaling = RopeScaling::yarn,
                    .factor = 4,
                    .mscale = 0.7,
                    .truncate = false,
                    .original_positions = 4096}));
    EXPECT_EQ(
        scaling({{"type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 1024}})
            .factor,
        4);

    // Beside the scaling: for the whole model.
    json whole = with(now, "original_max_position_embeddings", 512);
    EXPECT_EQ(parsed(whole).rope, expected);
    whole["rope_parameters"].erase("original_max_position_embeddings");
    EXPECT_EQ(parsed(whole).rope, expected);
    whole["rope_parameters"]["original_max_position_embeddings"] = 256;
    EXPECT_THAT(refused(whole), HasSubstr("d/config.json: original_max_position_embeddings: "
                                          "differs from 256, which is set with the scaling"));
    json yarn = with(rotary("qwen2"), "rope_scaling", {{"type", "yarn"}, {"factor", nullptr}});
    yarn["original_max_position_embeddings"] = 1024;
    EXPECT_EQ(parsed(yarn).rope.factor, 4);
}

TEST(ModelConfigFile, PrintsWhatItReadsOfEveryFamilyAndScaling) {
    for (const std::string& family : model_families()) {
        for (const RopeScaling scaling :
             {RopeScaling::none, RopeScaling::linear, RopeScaling::dynamic, RopeScaling::llama3,
              RopeScaling::yarn}) {
            if (family == "phi3" && scaling != RopeScaling::none) continue;  // has none of them
            ModelConfig config;
            config.num_layers = 3;
            config.hidden_size = 48;
            config.ffn_hidden_size = 100;
            config.num_attention_heads = 6;
            config.vocab_size = 77;
            config.max_position_embeddings = 32;
            config.tied = false;
            config.dtype = DType::bf16;
            set_family(config, family);
            if (family != "gpt2") {
                if (family != "gpt_neox" && !config.has_latents()) {
                    config.num_query_groups = 2;
                    config.kv_channels = family == "olmoe" ? 0 : 16;
                }
                config.rope.theta = 12345.5;
                config.rope.scaling = scaling;
                if (scaling != RopeScaling::none) config.rope.factor = 1.7;
                const bool original =
                    scaling == RopeScaling::llama3 || scaling == RopeScaling::yarn;
                config.rope.original_positions = original ? 19 : 0;
            }
            const json text = printed(config);
            EXPECT_EQ(text.at("torch_dtype"), "bfloat16");
            EXPECT_EQ(text.at("model_type"), family);
        }
    }
    EXPECT_THAT(print_model_config(ModelConfig{}), HasSubstr("\"layer_norm_epsilon\": 1e-05"));
}

TEST(ModelConfigFile, ReadsAndPrintsDepthsOfMultiTokenPrediction) {
    for (const json& without : {gpt2(), rotary("llama")}) {
        EXPECT_EQ(parsed(without).mtp_num_layers, 0);
        EXPECT_FALSE(printed(parsed(without)).contains("num_nextn_predict_layers"));
        const ModelConfig two = parsed(with(without, "num_nextn_predict_layers", 2));
        EXPECT_EQ(two.mtp_num_layers, 2);
        EXPECT_EQ(printed(two).at("num_nextn_predict_layers"), 2);
        EXPECT_THAT(refused(with(without, "num_nextn_predict_layers", -1)),
                    HasSubstr("num_nextn_predict_layers"));
    }
}

TEST(ModelConfigFile, ReadsAndPrintsTheSoftmaxOfAttention) {
    for (const json& without : {gpt2(), rotary("llama")}) {
        EXPECT_EQ(parsed(without).softmax_type, SoftmaxType::vanilla);
        EXPECT_FALSE(printed(parsed(without)).contains("softmax_type"));
        const ModelConfig vanilla = parsed(with(without, "softmax_type", "vanilla"));
        EXPECT_EQ(vanilla.softmax_type, SoftmaxType::vanilla);
        const ModelConfig sinks = parsed(with(without, "softmax_type", "learnable"));
        EXPECT_EQ(sinks.softmax_type, SoftmaxType::learnable);
        EXPECT_EQ(printed(sinks).at("softmax_type"), "learnable");
        EXPECT_THAT(refused(with(without, "softmax_type", "off-by-one")),
                    HasSubstr("softmax_type: \"off-by-one\" is not supported; use vanilla or "
                              "learnable"));
        EXPECT_THAT(refused(with(without, "softmax_type", true)), HasSubstr("softmax_type"));
    }
    EXPECT_THAT(refused(with(any_rotary("deepseek_v3"), "softmax_type", "learnable")),
                HasSubstr("softmax_type: latent attention has no sinks"));
}

TEST(ModelConfigFile, IsTiedByTheDefaultOfItsFamily) {
    for (const std::string& family : model_families()) {
        const json file = family == "gpt2" ? gpt2() : any_rotary(family);
        const bool tied = family == "gpt2" || family.starts_with("gemma") || family == "smollm3";
        EXPECT_EQ(parsed(file).tied, tied) << family;
    }
}

TEST(ModelConfigFile, IsFoundInItsFolder) {
    const TempFolder folder;
    write_file(folder / "config.json", rotary("qwen3").dump());
    EXPECT_EQ(load_model_config(folder / "config.json").family, "qwen3");
    EXPECT_EQ(load_model_config(folder / "").hidden_size, 96);
    EXPECT_THAT(message_of<InputFileError>([&] { (void)load_model_config(folder / "none"); }),
                HasSubstr("none"));
}

TEST(ModelConfigFile, RefusesByNameWhatIsNotComputed) {
    const auto gpt2_with = [](const char* key, const json& value) {
        return refused(with(gpt2(), key, value));
    };
    EXPECT_THAT(
        gpt2_with("model_type", "deepseek_v2"),
        HasSubstr("d/config.json: model_type: \"deepseek_v2\" is not supported; use one of " +
                  known_families() +
                  "; the nearest is deepseek_v3, missing is softmax scores of experts"));
    EXPECT_THAT(gpt2_with("model_type", "lama"),
                HasSubstr(known_families() + "; did you mean llama?"));
    EXPECT_THAT(gpt2_with("model_type", "gemma3"),
                HasSubstr("the nearest is gemma3_text, missing is images"));
    EXPECT_THAT(gpt2_with("activation_function", "relu"), HasSubstr("activation_function: \"relu"));
    EXPECT_THAT(gpt2_with("activation_function", "gelu_10"),
                HasSubstr("use gelu_pytorch_tanh, gelu_new, gelu"));
    EXPECT_THAT(gpt2_with("activation_function", "silu"), HasSubstr("\"silu\" is not supported"));
    EXPECT_THAT(gpt2_with("scale_attn_by_inverse_layer_idx", true),
                HasSubstr("scale_attn_by_inverse_layer_idx: true is not supported"));
    EXPECT_THAT(gpt2_with("scale_attn_weights", false), HasSubstr("scale_attn_weights: false"));
    EXPECT_THAT(gpt2_with("add_cross_attention", true), HasSubstr("add_cross_attention"));
    EXPECT_THAT(gpt2_with("is_causal", false), HasSubstr("is_causal: false is not supported"));
    EXPECT_THAT(gpt2_with("quantization_config", json::object()), HasSubstr("quantized"));
    EXPECT_THAT(gpt2_with("n_layer", 0), HasSubstr("n_layer: 0: must be an integer from 1"));
    EXPECT_THAT(gpt2_with("n_embd", "wide"), HasSubstr("n_embd: must be an integer"));
    EXPECT_THAT(gpt2_with("n_head", 7), HasSubstr("n_head: 7: must divide n_embd 768"));
    EXPECT_THAT(gpt2_with("vocab_size", -1), HasSubstr("vocab_size: -1"));
    EXPECT_THAT(gpt2_with("layer_norm_epsilon", "small"), HasSubstr("layer_norm_epsilon"));
    EXPECT_THAT(gpt2_with("layer_norm_epsilon", 1e300),
                HasSubstr("layer_norm_epsilon: 1e+300: must be a number from 1e-30 to 1e+30"));
    EXPECT_THAT(gpt2_with("tie_word_embeddings", 1),
                HasSubstr("tie_word_embeddings: must be true"));
    EXPECT_THAT(message_of<InputFileError>([] { (void)parse_model_config("{", "c"); }),
                HasSubstr("c: is not valid JSON"));

    EXPECT_THAT(refused(with(rotary("llama"), "hidden_act", "relu")),
                HasSubstr("hidden_act: \"relu\" is not supported"));
    EXPECT_THAT(refused(with(rotary("gemma2"), "hidden_activation", "gelu_10")),
                HasSubstr("hidden_activation: \"gelu_10\""));
    EXPECT_THAT(refused(with(rotary("llama"), "num_key_value_heads", 3)),
                HasSubstr("num_key_value_heads is 3, but must divide num_attention_heads 8"));
    EXPECT_THAT(refused(with(rotary("llama"), "head_dim", 13)), HasSubstr("(head_dim)"));
    EXPECT_THAT(refused(with(rotary("llama"), "partial_rotary_factor", 0.5)),
                HasSubstr("partial_rotary_factor: rotary positions on part"));
    EXPECT_EQ(parsed(with(rotary("phi3"), "partial_rotary_factor", 0.84)).rotary_size(), 10);
    EXPECT_THAT(refused(with(rotary("phi3"), "partial_rotary_factor", 0.08)),
                HasSubstr("partial_rotary_factor: rotary positions turn 0 of the 12 columns"));
    EXPECT_THAT(refused(with(rotary("gemma2"), "use_bidirectional_attention", true)),
                HasSubstr("use_bidirectional_attention: true is not supported"));
    EXPECT_THAT(refused(with(rotary("gemma2"), "final_logit_softcapping", 0)),
                HasSubstr("final_logit_softcapping: 0"));
    EXPECT_THAT(refused(with(rotary("gemma3_text"), "attn_logit_softcapping", 50.0)),
                HasSubstr("attn_logit_softcapping: scores of gemma3_text are not soft-capped"));
    EXPECT_THAT(refused(with(rotary("gemma3_text"), "sliding_window_pattern", 0)),
                HasSubstr("sliding_window_pattern: 0: must be an integer from 1"));
    EXPECT_THAT(refused(with(rotary("gemma2"), "layer_types", {"full_attention"})),
                HasSubstr("layer_types: has 1 entries, but num_hidden_layers is 4"));
    json types = with(rotary("qwen3"), "layer_types",
                      {"full_attention", "sliding_attention", "full_attention", "full_attention"});
    EXPECT_THAT(refused(types), HasSubstr("layer_types[1]: sliding_attention, but no "
                                          "sliding_window is set with use_sliding_window true"));
    types["layer_types"][1] = "chunked_attention";
    EXPECT_THAT(refused(types), HasSubstr("layer_types[1]: \"chunked_attention\" is not"));
}

TEST(ModelConfigFile, ReadsTheExactGeluOfEveryFamilyThatNamesIt) {
    for (const std::string& family : model_families()) {
        const json file = family == "gpt2" ? gpt2() : any_rotary(family);
        const bool newer_gemma = family == "gemma2" || family == "gemma3_text";
        const char* const key = family == "gpt2" ? "activation_function"
                                : newer_gemma    ? "hidden_activation"
                                                 : "hidden_act";
        const ModelConfig config = parsed(with(file, key, "gelu"));
        if (family == "gemma") {  // whose first files say so of the tanh form
            EXPECT_EQ(config.activation, kernels::Activation::gelu_tanh);
            continue;
        }
        EXPECT_EQ(config.activation, kernels::Activation::gelu) << family;
        EXPECT_EQ(printed(config).at(key), "gelu") << family;
    }
    EXPECT_EQ(printed(parsed(gpt2())).at("activation_function"), "gelu_new");
}

TEST(ModelConfigFile, ComputesLayerTypesOrRefusesThemInEveryFamily) {
    const json mixed{"full_attention", "sliding_attention", "sliding_attention", "full_attention"};
    const json full{"full_attention", "full_attention", "full_attention", "full_attention"};
    for (const std::string& family : model_families()) {
        if (family == "gpt2") continue;
        SCOPED_TRACE(family);
        json file = any_rotary(family);
        file["sliding_window"] = 7;
        file["use_sliding_window"] = true;
        if (family == "qwen2_moe") file["layer_types"] = full;
        const ModelConfig plain = parsed(file);
        // What transformers 5 builds masks from layer_types for; mistral as ministral.
        const bool reads = family == "mistral" || family == "qwen2" || family == "qwen3" ||
                           family == "gemma2" || family == "gemma3_text" || family == "smollm3" ||
                           family == "qwen2_moe" || family == "dots1";
        file["layer_types"] = mixed;
        if (reads) {
            const ModelConfig config = parsed(file);
            EXPECT_THAT(config.windowed, ElementsAre(false, true, true, false));
            EXPECT_EQ(config.window(1), 7);
            EXPECT_EQ(printed(config).at("layer_types"), mixed);
            EXPECT_THAT(parsed(printed(config)).windowed, ElementsAre(false, true, true, false));
            file["layer_types"] = full;
            EXPECT_THAT(parsed(file).windowed, IsEmpty());
            EXPECT_THAT(parsed(printed(parsed(file))).windowed, IsEmpty());
        } else {
            EXPECT_THAT(refused(file), AllOf(HasSubstr("d/config.json: layer_types["),
                                             HasSubstr("in " + family +
                                                       ", where transformers "
                                                       "passes over layer_types; "
                                                       "remove layer_types")));
            // What says the same as the other keys changes nothing.
            json same = json::array();
            for (int i = 0; i < 4; ++i) {
                same.push_back(plain.window(i) > 0 ? "sliding_attention" : "full_attention");
            }
            file["layer_types"] = same;
            EXPECT_EQ(parsed(file).windowed, plain.windowed);
        }
        for (const size_t count : {3, 5, 7}) {
            file["layer_types"] = std::vector<std::string>(count, "full_attention");
            EXPECT_THAT(refused(file), HasSubstr("layer_types: has " + std::to_string(count) +
                                                 " entries, but num_hidden_layers is 4"));
        }
        file["layer_types"] = mixed;
        file["layer_types"][2] = "chunked_attention";
        EXPECT_THAT(refused(file), HasSubstr("layer_types[2]: \"chunked_attention\" is not"));
    }
}

TEST(ModelConfigFile, RefusesWindowsOfLayerTypesThatUseSlidingWindowTurnsOff) {
    for (const char* const family : {"qwen2", "qwen3", "qwen2_moe", "smollm3"}) {
        json file = with(with(rotary(family), "use_sliding_window", false), "sliding_window", 7);
        file["layer_types"] = {"full_attention", "full_attention", "sliding_attention",
                               "full_attention"};
        EXPECT_THAT(refused(file), HasSubstr("layer_types[2]: sliding_attention, but no "
                                             "sliding_window is set with use_sliding_window true"))
            << family;
        file["layer_types"][2] = "full_attention";
        EXPECT_THAT(parsed(file).windowed, IsEmpty()) << family;
    }
}

TEST(ModelConfigFile, ReadsMinistralAsMistral) {
    json file = with(rotary("ministral"), "sliding_window", 7);
    EXPECT_EQ(parsed(file).family, "mistral");
    EXPECT_THAT(parsed(file).windowed, ElementsAre(true, true, true, true));
    file["layer_types"] = {"full_attention", "full_attention", "full_attention",
                           "sliding_attention"};
    EXPECT_THAT(parsed(file).windowed, ElementsAre(false, false, false, true));
    EXPECT_THAT(refused(rotary("ministral3")), HasSubstr("\"ministral3\" is not supported"));
    EXPECT_THAT(refused(rotary("")), HasSubstr("model_type: \"\" is not supported"));
}

TEST(ModelConfigFile, PrintsLayerTypesOfMistralOnlyWhereTheyDiffer) {
    json file = with(rotary("mistral"), "sliding_window", 7);
    EXPECT_FALSE(printed(parsed(file)).contains("layer_types"));
    file["layer_types"] = std::vector<std::string>(4, "sliding_attention");
    EXPECT_FALSE(printed(parsed(file)).contains("layer_types"));
    EXPECT_EQ(printed(parsed(file)).at("sliding_window"), 7);
    file["layer_types"] = std::vector<std::string>(4, "full_attention");
    EXPECT_TRUE(printed(parsed(file)).at("sliding_window").is_null());
    file["sliding_window"] = nullptr;
    file["layer_types"][0] = "sliding_attention";
    EXPECT_THAT(refused(file),
                HasSubstr("layer_types[0]: sliding_attention, but no sliding_window is set"));
}

TEST(ModelConfigFile, KeepsTheTokensThatBeginAndEndATextWhereTheVocabularyHasThem) {
    json file = with(with(rotary("llama"), "bos_token_id", 5), "eos_token_id", 7);
    EXPECT_EQ(printed(parsed(file)).at("bos_token_id"), 5);
    EXPECT_EQ(printed(parsed(file)).at("eos_token_id"), 7);
    file["eos_token_id"] = {7, 9, 32003};  // the last is beyond the vocabulary
    EXPECT_EQ(printed(parsed(file)).at("eos_token_id"), json({7, 9}));
    for (const json& none : {json(-1), json(nullptr), json(32003), json::array()}) {
        file["bos_token_id"] = file["eos_token_id"] = none;
        EXPECT_TRUE(printed(parsed(file)).at("bos_token_id").is_null());
        EXPECT_TRUE(printed(parsed(file)).at("eos_token_id").is_null());
    }
    EXPECT_TRUE(printed(parsed(rotary("llama"))).at("eos_token_id").is_null());
}

TEST(ModelConfigFile, LimitsSequencesByLearnedPositionsAlone) {
    for (const std::string& family : model_families()) {
        ModelConfig config = parsed(family == "gpt2" ? gpt2() : any_rotary(family));
        config.seq_length = config.max_position_embeddings + 1;
        if (family == "gpt2") {
            EXPECT_THROW(config.check(), UsageError);
            EXPECT_THAT(message_of<UsageError>([&] { check_positions(config, 1025); }),
                        HasSubstr("--seq-length 1025: the model has 1024 positions"));
        } else {
            EXPECT_NO_THROW(config.check()) << family;
            EXPECT_NO_THROW(check_positions(config, config.seq_length)) << family;
        }
    }
}

TEST(ModelConfigFile, RefusesRotaryPositionsThatAreNotComputed) {
    const auto scaling = [](const json& value) {
        return refused(with(rotary("llama"), "rope_scaling", value));
    };
    EXPECT_THAT(scaling({{"rope_type", "longrope"}, {"factor", 2}}),
                HasSubstr("rope_scaling.rope_type: \"longrope\" is not supported; use default, "
                          "linear, dynamic, llama3, yarn"));
    EXPECT_THAT(scaling({{"type", "linear"}}), HasSubstr("\"factor\" is missing"));
    EXPECT_THAT(scaling({{"type", "linear"}, {"rope_type", "yarn"}}), HasSubstr("keep one"));
    EXPECT_THAT(scaling({{"type", "default"}, {"mrope_section", {1, 2}}}),
                HasSubstr("unknown key \"mrope_section\""));
    EXPECT_THAT(
        scaling(
            {{"type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 3}}),
        HasSubstr("high_freq_factor: must not be less than low_freq_factor"));
    EXPECT_THAT(scaling({{"type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.25}}),
                HasSubstr("rope_scaling.partial_rotary_factor"));
    EXPECT_THAT(scaling({{"type", "linear"}, {"factor", 0}}), HasSubstr("factor: 0"));
    json both = with(rotary("llama"), "rope_scaling", {{"type", "linear"}, {"factor", 2}});
    both["rope_parameters"] = {{"rope_type", "default"}};
    EXPECT_THAT(refused(both), HasSubstr("rope_scaling: is set together with rope_parameters"));
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
