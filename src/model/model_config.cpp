// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/model_config.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

constexpr std::array<std::pair<std::string_view, ModelFamily>, 5> kFamilies{{
    {"gpt2", ModelFamily::gpt2},
    {"llama", ModelFamily::llama},
    {"qwen2", ModelFamily::qwen2},
    {"qwen3", ModelFamily::qwen3},
    {"gemma2", ModelFamily::gemma2},
}};

constexpr int64_t kGemmaWindow = 4096;  // of Gemma 2 as published

}  // namespace

std::string_view to_string(ModelFamily family) {
    for (const auto& [name, value] : kFamilies) {
        if (value == family) return name;
    }
    return {};
}

ModelFamily model_family_from(std::string_view name) {
    std::string known;
    for (const auto& [known_name, value] : kFamilies) {
        if (known_name == name) return value;
        known += (known.empty() ? "" : ", ") + std::string(known_name);
    }
    throw UsageError("--model-type " + std::string(name) + ": must be one of " + known);
}

void set_family(ModelConfig& c, ModelFamily family) {
    c.family = family;
    if (family == ModelFamily::gpt2) return;  // the defaults
    c.normalization = Normalization::rms_norm;
    c.norm_epsilon = family == ModelFamily::llama ? 1e-5F : 1e-6F;
    c.learned_positions = false;
    c.gated = true;
    c.activation = kernels::Activation::silu;
    c.qkv_bias = family == ModelFamily::qwen2;
    c.attention_output_bias = false;
    c.mlp_bias = false;
    c.qk_norm = family == ModelFamily::qwen3;
    if (family != ModelFamily::gemma2) return;
    c.activation = kernels::Activation::gelu_tanh;
    c.norm_weight_offset = 1;
    c.post_norms = true;
    c.attention_softcap = 50;
    c.logit_softcap = 30;
    c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_size));
    // Every other layer from the first has the window.
    if (c.sliding_window == 0) c.sliding_window = kGemmaWindow;
    c.windowed.resize(static_cast<size_t>(std::max(c.num_layers, 0)));
    for (size_t layer = 0; layer < c.windowed.size(); ++layer) c.windowed[layer] = layer % 2 == 0;
}

void ModelConfig::check() const {
    const auto at_least = [](const char* flag, int64_t value, int64_t limit) {
        if (value < limit) {
            throw UsageError(std::string(flag) + " " + std::to_string(value) +
                             ": must be at least " + std::to_string(limit));
        }
    };
    at_least("--num-layers", num_layers, 1);
    at_least("--hidden-size", hidden_size, 1);
    at_least("--ffn-hidden-size", ffn_hidden_size, 1);
    at_least("--num-attention-heads", num_attention_heads, 1);
    at_least("--seq-length", seq_length, 1);
    at_least("--vocab-size", vocab_size, 1);
    if (vocab_size > INT32_MAX) {
        throw UsageError("--vocab-size " + std::to_string(vocab_size) +
                         ": token ids are 32-bit, at most 2147483647");
    }
    if (kv_channels == 0 && hidden_size % num_attention_heads != 0) {
        throw UsageError("--num-attention-heads " + std::to_string(num_attention_heads) +
                         ": must divide --hidden-size " + std::to_string(hidden_size) +
                         ", or give --kv-channels");
    }
    at_least("--num-query-groups", num_query_groups, 0);
    at_least("--kv-channels", kv_channels, 0);
    if (num_attention_heads % kv_heads() != 0) {
        throw UsageError("--num-query-groups " + std::to_string(num_query_groups) +
                         ": must divide --num-attention-heads " +
                         std::to_string(num_attention_heads));
    }
    if (family == ModelFamily::gpt2 && kv_heads() != num_attention_heads) {
        throw UsageError("--num-query-groups " + std::to_string(num_query_groups) +
                         ": files of gpt2 have as many as --num-attention-heads " +
                         std::to_string(num_attention_heads) +
                         "; leave it out, or choose another --model-type");
    }
    if (family == ModelFamily::gpt2 && query_columns() != hidden_size) {
        throw UsageError("--kv-channels " + std::to_string(kv_channels) +
                         ": files of gpt2 have --hidden-size / --num-attention-heads; leave it "
                         "out, or choose another --model-type");
    }
    if (!learned_positions && head_size() % 2 != 0) {
        throw UsageError("--kv-channels " + std::to_string(head_size()) +
                         ": rotary positions need an even size of a head");
    }
    if (logit_softcap > 0 && label_smoothing > 0) {
        throw UsageError("--label-smoothing " + std::to_string(label_smoothing) +
                         ": not together with soft-capped logits (" +
                         std::string(to_string(family)) +
                         "), whose gradient would need another product; leave it out");
    }
    if (max_position_embeddings < seq_length) {
        throw UsageError("--max-position-embeddings " + std::to_string(max_position_embeddings) +
                         ": must be at least --seq-length " + std::to_string(seq_length));
    }
}

}  // namespace vocabpipe
