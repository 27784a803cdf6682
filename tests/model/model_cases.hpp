// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string_view>

#include "tests/support/single_rank_oracle.hpp"

namespace vocabpipe::testing {

/// Small enough for plain loops in double. init_std keeps the gradients of every tensor away from
/// 0.
[[nodiscard]] inline ModelConfig small_model(int num_layers, int64_t seq_length, int64_t vocab_size,
                                             bool tied) {
    ModelConfig config;
    config.num_layers = num_layers;
    config.hidden_size = 16;
    config.ffn_hidden_size = 40;  // not 4 h
    config.num_attention_heads = 2;
    config.seq_length = seq_length;
    config.max_position_embeddings = seq_length + 2;  // some positions are never used
    config.vocab_size = vocab_size;
    config.tied = tied;
    config.init_std = 0.3F;
    return config;
}

/// A small model of a family, with what its configurations may differ in.
[[nodiscard]] inline ModelConfig small_family(std::string_view family, int num_layers,
                                              int64_t seq_length, int64_t vocab_size, bool tied) {
    ModelConfig config = small_model(num_layers, seq_length, vocab_size, tied);
    set_family(config, family);
    if (config.learned_positions) return config;  // GPT-2 has none of what follows
    config.rope.theta = 100;     // turns also the slow dimensions within a short sequence
    if (family == "gpt_neox") {  // nor has GPT-NeoX
        config.rotary_channels = 4;
        return config;
    }
    config.num_attention_heads = 4;
    if (config.has_latents()) {
        config.latent = {.kv_rank = 5, .q_rank = 7, .key_size = 3, .rope_size = 4, .value_size = 6};
    } else {
        config.num_query_groups = 2;
        config.kv_channels = 6;  // not h / heads
    }
    config.sliding_window = 3;
    if (config.logit_softcap > 0) {
        config.attention_softcap = 2;  // bent by these models' scores and logits
        config.logit_softcap = 3;
        config.attention_scale = 0.3F;
    }
    if (config.moe.experts > 0) config.moe.experts = 5;  // not a power of 2
    if (config.windowed_rope) {
        config.rope.scaling = RopeScaling::linear;
        config.rope.factor = 3;
        config.windowed_rope->theta = 20;
        // In fewer layers than a published model has from one without a window to the next.
        for (size_t i = 0; i < config.windowed.size(); ++i) config.windowed[i] = i % 3 != 1;
    }
    // In fewer layers than a published model has from one without rotary positions to the next.
    for (size_t layer = 1; family == "smollm3" && layer < config.roped.size(); layer += 2) {
        config.roped[layer] = false;
    }
    return config;
}

/// LongRoPE of heads of 8.
[[nodiscard]] inline Rope long_rope(int64_t original_positions) {
    return {.theta = 30,
            .scaling = RopeScaling::longrope,
            .factor = 4,
            .original_positions = original_positions,
            .short_factors = {1, 1.1, 1.5, 2},
            .long_factors = {1, 2, 3.5, 5}};
}

struct ModelCase {
    std::string name;
    ModelConfig config;
    int microbatches = 2;
    int64_t sequences = 1;
    double ignored = 0;  ///< share of the labels
    int all_ignored_microbatch = -1;
    bool uneven_g = false;   ///< a g of its own per token instead of 1 / count
    int ranks = 2;           ///< of the pipelined run
    bool documents = false;  ///< sequences of several documents, kept apart

    [[nodiscard]] Batch batch() const {
        Batch batch = random_batch(config, microbatches, sequences, 11, ignored);
        for (size_t j = 0; j < batch.labels.size(); ++j) {
            for (size_t n = 0; n < batch.labels[j].size(); ++n) {
                if (static_cast<int>(j) == all_ignored_microbatch) {
                    batch.labels[j][n] = -100;
                    batch.loss_gradient[j][n] = 0;
                }
                if (uneven_g && batch.labels[j][n] >= 0) {
                    batch.loss_gradient[j][n] *= 0.25F * static_cast<float>(n % 7 + 1);
                }
            }
        }
        if (documents) cut_into_documents(batch, 12);
        return batch;
    }
    friend void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }
};

[[nodiscard]] inline std::vector<ModelCase> model_cases() {
    const auto with = [](ModelConfig config, float smoothing, float z_loss) {
        config.label_smoothing = smoothing;
        config.z_loss = z_loss;
        return config;
    };
    return {
        {.name = "Untied", .config = small_model(2, 6, 29, false)},
        {.name = "Tied", .config = small_model(2, 6, 29, true)},
        {.name = "OneLayerLabelSmoothing",
         .config = with(small_model(1, 6, 29, false), 0.1F, 0),
         .ignored = 0.2,
         .ranks = 1},
        {.name = "TiedZLoss",
         .config = with(small_model(2, 5, 29, true), 0, 0.01F),
         .sequences = 2},
        {.name = "ThreeLayersSmoothingZLossIgnored",
         .config = with(small_model(3, 7, 31, false), 0.2F, 0.02F),
         .microbatches = 3,
         .sequences = 3,
         .ignored = 0.3,
         .ranks = 3},
        {.name = "TiedThreeLayersSmoothingZLossIgnored",
         .config = with(small_model(3, 7, 31, true), 0.2F, 0.02F),
         .microbatches = 3,
         .sequences = 2,
         .ignored = 0.3,
         .ranks = 3},
        {.name = "OneMicrobatchAllIgnored",
         .config = with(small_model(2, 5, 29, false), 0.1F, 0.01F),
         .microbatches = 3,
         .ignored = 0.2,
         .all_ignored_microbatch = 1},
        {.name = "UnevenG",
         .config = with(small_model(2, 6, 29, false), 0.1F, 0.01F),
         .ignored = 0.2,
         .uneven_g = true},
        {.name = "SequenceOfOneToken",
         .config = small_model(2, 1, 29, false),
         .microbatches = 3,
         .sequences = 3},
        {.name = "SequenceOfOneTokenTiedOneSequence", .config = small_model(1, 1, 5, true)},
        {.name = "SequenceLongerThanAnAttentionBlock",  // of 64 rows
         .config = with(small_model(2, 70, 11, true), 0.1F, 0.01F),
         .microbatches = 1,
         .ignored = 0.1},
        {.name = "FewerRowsThanRanks",
         .config = with(small_model(4, 5, 3, false), 0.1F, 0.01F),
         .sequences = 2,
         .ranks = 4},
        {.name = "FewerRowsThanRanksTied", .config = small_model(4, 5, 3, true), .ranks = 4},
        {.name = "Llama", .config = with(small_family("llama", 2, 6, 29, false), 0.1F, 0.01F)},
        {.name = "LlamaTiedWithBiases",
         .config =
             [] {
                 ModelConfig config = small_family("llama", 3, 7, 31, true);
                 config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
                 return config;
             }(),
         .sequences = 2,
         .ranks = 3},
        {.name = "Qwen2", .config = small_family("qwen2", 2, 6, 29, true)},
        {.name = "Qwen3",
         .config = with(small_family("qwen3", 3, 7, 31, false), 0.1F, 0),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 3},
        {.name = "Mistral",
         .config = with(small_family("mistral", 3, 9, 41, false), 0.1F, 0.01F),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 3},
        {.name = "GemmaUnevenG",
         .config = with(small_family("gemma", 3, 7, 37, true), 0, 0.01F),
         .sequences = 2,
         .uneven_g = true},
        {.name = "Gemma2",
         .config = with(small_family("gemma2", 4, 7, 31, true), 0, 0.01F),
         .sequences = 2,
         .ignored = 0.2},
        {.name = "Gemma2UntiedUnevenG",
         .config = small_family("gemma2", 3, 6, 29, false),
         .microbatches = 3,
         .uneven_g = true,
         .ranks = 3},
        {.name = "Gemma3Text",
         .config =
             [&] {
                 ModelConfig config = with(small_family("gemma3_text", 4, 8, 43, true), 0, 0.01F);
                 config.hidden_size = 18;
                 config.ffn_hidden_size = 33;
                 config.num_attention_heads = 6;
                 config.num_query_groups = 3;
                 config.kv_channels = 8;
                 config.logit_softcap = 4;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 4},
        {.name = "Gemma3TextUntiedWithBiasesDocuments",
         .config =
             [&] {
                 ModelConfig config = with(small_family("gemma3_text", 3, 9, 37, false), 0.1F, 0);
                 config.num_attention_heads = 5;
                 config.num_query_groups = 1;
                 config.kv_channels = 10;
                 config.attention_scale = 0.4F;
                 config.qkv_bias = config.attention_output_bias = true;
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .ranks = 3,
         .documents = true},
        {.name = "Olmo2",
         .config =
             [&] {
                 ModelConfig config = with(small_family("olmo2", 3, 7, 43, false), 0.1F, 0.01F);
                 config.hidden_size = 22;
                 config.ffn_hidden_size = 35;
                 config.num_attention_heads = 6;
                 config.num_query_groups = 3;
                 config.kv_channels = 10;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 3},
        {.name = "Olmo2TiedWithBiasesDocuments",
         .config =
             [] {
                 ModelConfig config = small_family("olmo2", 2, 8, 53, true);
                 config.num_attention_heads = 3;
                 config.num_query_groups = 1;
                 config.kv_channels = 10;
                 config.qkv_bias = config.attention_output_bias = true;
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .documents = true},
        {.name = "Phi3",
         .config =
             [&] {
                 ModelConfig config = with(small_family("phi3", 3, 8, 61, false), 0.1F, 0.01F);
                 config.rope = long_rope(5);
                 config.rotary_channels = 6;
                 config.rope.short_factors.resize(3);
                 config.rope.long_factors.resize(3);
                 config.hidden_size = 14;
                 config.ffn_hidden_size = 23;
                 config.num_attention_heads = 9;
                 config.num_query_groups = 3;
                 config.kv_channels = 8;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 3},
        {.name = "SmolLm3",
         .config =
             [&] {
                 ModelConfig config = with(small_family("smollm3", 4, 7, 47, true), 0.1F, 0.01F);
                 config.hidden_size = 26;
                 config.ffn_hidden_size = 37;
                 config.num_attention_heads = 9;
                 config.num_query_groups = 3;
                 config.kv_channels = 4;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 4},
        {.name = "SmolLm3UntiedWithBiasesWindowsDocuments",
         .config =
             [] {
                 ModelConfig config = small_family("smollm3", 3, 9, 59, false);
                 config.num_attention_heads = 5;
                 config.num_query_groups = 1;
                 config.kv_channels = 8;
                 config.windowed = {false, true, false};
                 config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .ranks = 3,
         .documents = true},
        {.name = "GptNeox",
         .config =
             [&] {
                 ModelConfig config = with(small_family("gpt_neox", 3, 7, 61, false), 0.1F, 0.01F);
                 config.hidden_size = 30;
                 config.ffn_hidden_size = 33;
                 config.num_attention_heads = 3;
                 config.rotary_channels = 6;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 3},
        {.name = "Phi3TiedWindowsDocuments",
         .config =
             [] {
                 ModelConfig config = small_family("phi3", 2, 9, 47, true);
                 config.num_attention_heads = 3;
                 config.num_query_groups = 0;
                 config.kv_channels = 14;
                 config.windowed = {true, true};
                 config.rope = long_rope(9);
                 for (auto* factors : {&config.rope.short_factors, &config.rope.long_factors}) {
                     factors->resize(7, 1.25);
                 }
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .documents = true},
        {.name = "GptNeoxTiedInARowTanhOddHeadsDocuments",
         .config =
             [] {
                 ModelConfig config = small_family("gpt_neox", 2, 9, 37, true);
                 config.hidden_size = 21;
                 config.ffn_hidden_size = 31;
                 config.num_attention_heads = 3;
                 config.parallel_residual = false;
                 config.activation = kernels::Activation::gelu_tanh;
                 config.qkv_bias = config.attention_output_bias = false;
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .documents = true},
        {.name = "GptNeoxOddColumnsBeyondItsPositions",
         .config =
             [] {
                 ModelConfig config = small_family("gpt_neox", 2, 9, 37, false);
                 config.hidden_size = 33;
                 config.num_attention_heads = 3;
                 config.rotary_channels = 5;  // turns 6 of the 11
                 config.max_position_embeddings = 4;
                 config.rope.scaling = RopeScaling::dynamic;
                 config.rope.factor = 3;
                 config.rope.original_positions = 4;
                 return config;
             }(),
         .sequences = 2},
        {.name = "Gemma2ExactGelu",
         .config =
             [] {
                 ModelConfig config = small_family("gemma2", 2, 8, 37, true);
                 config.activation = kernels::Activation::gelu;
                 return config;
             }(),
         .sequences = 2},
        {.name = "Mixtral",
         .config =
             [&] {
                 ModelConfig config = with(small_family("mixtral", 3, 7, 31, false), 0.1F, 0.01F);
                 config.moe.aux_loss = 0.3F;
                 config.moe.z_loss = 0.05F;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 3},
        {.name = "MixtralFewTokensUntied",  // whose choices are clear enough for bf16
         .config =
             [] {
                 ModelConfig config = small_family("mixtral", 2, 3, 29, false);
                 config.moe.experts = 3;
                 config.moe.top_k = 1;
                 config.moe.aux_loss = 0.1F;
                 return config;
             }(),
         .microbatches = 1},
        {.name = "MixtralOneExpertOfOneTied",
         .config =
             [] {
                 ModelConfig config = small_family("mixtral", 2, 6, 29, true);
                 config.moe.experts = 1;
                 config.moe.top_k = 1;
                 return config;
             }()},
        {.name = "Qwen3MoeDenseLayersDocuments",
         .config =
             [&] {
                 ModelConfig config = with(small_family("qwen3_moe", 3, 9, 37, false), 0, 0.01F);
                 config.moe.experts = 7;
                 config.moe.top_k = 3;
                 config.moe.ffn_hidden_size = 13;
                 config.moe.normalize = false;
                 config.moe.aux_loss = 0.2F;
                 config.moe.sparse = {true, false, true};
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .ranks = 3,
         .documents = true},
        {.name = "Qwen3MoeAllExpertsTied",
         .config =
             [] {
                 ModelConfig config = small_family("qwen3_moe", 2, 8, 29, true);
                 config.moe.experts = 4;
                 config.moe.top_k = 4;
                 config.moe.z_loss = 0.1F;
                 return config;
             }(),
         .sequences = 2},
        {.name = "Olmoe",
         .config =
             [&] {
                 ModelConfig config = with(small_family("olmoe", 3, 7, 43, false), 0.1F, 0.01F);
                 config.hidden_size = 24;  // heads of h / heads
                 config.kv_channels = 0;
                 config.moe.top_k = 4;
                 config.moe.aux_loss = 0.1F;
                 config.moe.normalize = false;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.2,
         .ranks = 3},
        {.name = "Qwen2Moe",
         .config =
             [&] {
                 ModelConfig config = with(small_family("qwen2_moe", 3, 8, 41, false), 0, 0.01F);
                 config.moe.experts = 6;
                 config.moe.ffn_hidden_size = 11;
                 config.moe.shared_ffn_hidden_size = 17;
                 config.moe.normalize = false;
                 config.moe.aux_loss = 0.1F;
                 config.moe.z_loss = 0.02F;
                 config.moe.sparse = {false, true, true};
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .ranks = 3},
        {.name = "Qwen2MoeAllExpertsTied",
         .config =
             [] {
                 ModelConfig config = small_family("qwen2_moe", 2, 6, 29, true);
                 config.moe.experts = config.moe.top_k = 3;
                 return config;
             }()},
        {.name = "Dots1",
         .config =
             [&] {
                 ModelConfig config = with(small_family("dots1", 3, 8, 37, false), 0, 0.01F);
                 config.moe.experts = 6;
                 config.moe.top_k = 3;
                 config.moe.groups = 3;
                 config.moe.top_groups = 2;
                 config.moe.scaling = 1.7F;
                 config.moe.ffn_hidden_size = 11;
                 config.moe.shared_ffn_hidden_size = 22;
                 config.moe.aux_loss = 0.2F;
                 config.moe.z_loss = 0.02F;
                 config.moe.sparse = {false, true, true};
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .ranks = 3},
        {.name = "Dots1PlainWeightsTied",
         .config =
             [] {
                 ModelConfig config = small_family("dots1", 2, 6, 29, true);
                 config.moe.normalize = false;
                 config.moe.aux_loss = 0.1F;
                 return config;
             }()},
        {.name = "DeepSeekV3",
         .config =
             [&] {
                 ModelConfig config = with(small_family("deepseek_v3", 3, 8, 37, false), 0, 0.01F);
                 config.attention_scale = 0.2F;  // small third derivatives: norms of few columns
                 config.moe.experts = 6;
                 config.moe.top_k = 3;
                 config.moe.groups = 3;
                 config.moe.top_groups = 2;
                 config.moe.scaling = 1.7F;
                 config.moe.ffn_hidden_size = 11;
                 config.moe.aux_loss = 0.2F;
                 config.moe.sparse = {false, true, true};
                 return config;
             }(),
         .sequences = 2,
         .uneven_g = true,
         .ranks = 3},
        {.name = "DeepSeekV3WithoutALatentOfQInDocumentsDepthTied",
         .config =
             [] {
                 ModelConfig config = small_family("deepseek_v3", 2, 9, 29, true);
                 config.latent.q_rank = 0;
                 config.attention_scale = 0.7F;
                 config.mtp_num_layers = 1;
                 return config;
             }(),
         .sequences = 2,
         .documents = true},
        {.name = "LlamaTwoDepths",
         .config =
             [&] {
                 ModelConfig config = with(small_family("llama", 3, 7, 31, false), 0.1F, 0.01F);
                 config.mtp_num_layers = 2;
                 config.mtp_loss_scaling_factor = 0.7F;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.1,
         .uneven_g = true,
         .ranks = 3},
        {.name = "Qwen3DepthsTied",
         .config =
             [] {
                 ModelConfig config = small_family("qwen3", 2, 5, 29, true);
                 config.mtp_num_layers = 2;
                 return config;
             }(),
         .sequences = 3},
        {.name = "GptNeoxDepth",
         .config =
             [] {
                 ModelConfig config = small_family("gpt_neox", 2, 6, 29, false);
                 config.mtp_num_layers = 1;
                 return config;
             }()},
        {.name = "Gemma2LikeDepthInDocuments",
         .config =
             [] {
                 ModelConfig config = small_family("gemma2", 2, 9, 29, true);
                 config.embedding_scale = 1;
                 config.mtp_num_layers = 1;
                 return config;
             }(),
         .sequences = 2,
         .documents = true},
        {.name = "Dots1Depths",
         .config =
             [] {
                 ModelConfig config = small_family("dots1", 2, 6, 29, false);
                 config.moe.experts = 6;
                 config.moe.aux_loss = 0.2F;
                 config.moe.z_loss = 0.02F;
                 config.moe.sparse = {false, true};
                 config.mtp_num_layers = 2;
                 config.mtp_loss_scaling_factor = 0.7F;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.1,
         .uneven_g = true},
        {.name = "Qwen2MoeDepthTied",
         .config =
             [] {
                 ModelConfig config = small_family("qwen2_moe", 2, 6, 29, true);
                 config.moe.aux_loss = 0.1F;
                 config.mtp_num_layers = 1;
                 return config;
             }(),
         .sequences = 2},
        {.name = "LlamaSinks",
         .config =
             [&] {
                 ModelConfig config = with(small_family("llama", 3, 8, 37, false), 0.1F, 0.01F);
                 config.softmax_type = SoftmaxType::learnable;
                 return config;
             }(),
         .sequences = 2,
         .ignored = 0.1,
         .uneven_g = true,
         .ranks = 3},
        {.name = "Gemma2SinksInWindowsAndDocuments",
         .config =
             [] {
                 ModelConfig config = small_family("gemma2", 2, 9, 29, true);
                 config.softmax_type = SoftmaxType::learnable;
                 return config;
             }(),
         .sequences = 2,
         .documents = true},
        {.name = "Qwen3MoeSinks",
         .config =
             [] {
                 ModelConfig config = small_family("qwen3_moe", 2, 6, 29, false);
                 config.softmax_type = SoftmaxType::learnable;
                 return config;
             }(),
         .sequences = 2},
        {.name = "Gpt2Sinks",
         .config =
             [] {
                 ModelConfig config = small_family("gpt2", 2, 6, 29, true);
                 config.softmax_type = SoftmaxType::learnable;
                 return config;
             }()},
        {.name = "LlamaDocuments",
         .config = small_family("llama", 3, 9, 31, false),
         .sequences = 2,
         .ignored = 0.1,
         .ranks = 3,
         .documents = true},
        {.name = "Gemma2Documents",
         .config = small_family("gemma2", 2, 9, 29, true),
         .sequences = 2,
         .documents = true},
    };
}

[[nodiscard]] inline std::string name_of_model(const ::testing::TestParamInfo<ModelCase>& info) {
    return info.param.name;
}

}  // namespace vocabpipe::testing
