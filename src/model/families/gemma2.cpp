// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team 2024, arXiv 2408.00118): Gemma with norms of what goes into the residual,
// soft-capped scores and logits, and a window in every other layer.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/gemma.hpp"
#include "src/model/families/rotary_decoder.hpp"

#include <cmath>

namespace vocabpipe {

namespace {

constexpr float kAttentionSoftcap = 50;
constexpr float kLogitSoftcap = 30;
constexpr double kQueryScalar = 256;  // transformers' default

bool every_other_layer(int layer) {
    return layer % 2 == 0;
}

void set_gemma2(ModelConfig& c) {
    set_any_gemma(c);
    c.post_norms = true;
    c.attention_softcap = kAttentionSoftcap;
    c.logit_softcap = kLogitSoftcap;
    set_windows(c, c.sliding_window > 0 ? c.sliding_window : kDefaultWindow, every_other_layer);
}

void read_gemma2(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    read_attention_bias(file, c);
    const auto softcap = [&](const char* key, float missing) {
        return file.json().has(key) ? static_cast<float>(file.positive(key, 0)) : missing;
    };
    c.attention_softcap = softcap("attn_logit_softcapping", kAttentionSoftcap);
    c.logit_softcap = softcap("final_logit_softcapping", kLogitSoftcap);
    const double scalar = file.positive("query_pre_attn_scalar", kQueryScalar);
    const bool usual = scalar == static_cast<double>(c.head_size());
    c.attention_scale = usual ? 0 : static_cast<float>(1 / std::sqrt(scalar));
    read_layer_types(file, read_window(file), "", every_other_layer, c);
}

/// null for 0, where transformers has None.
nlohmann::ordered_json number_or_null(float value) {
    if (value == 0) return nullptr;
    return shortest(value);
}

/// The number whose reciprocal root is the scale of scores; transformers has a whole one.
nlohmann::ordered_json query_scalar(const ModelConfig& c) {
    if (c.attention_scale == 0) return c.head_size();
    const double scalar = 1 / (static_cast<double>(c.attention_scale) * c.attention_scale);
    const double whole = std::round(scalar);
    if (static_cast<float>(1 / std::sqrt(whole)) == c.attention_scale) {
        return static_cast<int64_t>(whole);
    }
    return scalar;
}

void print_gemma2(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, {.attention = true}, json);
    json["query_pre_attn_scalar"] = query_scalar(c);
    json["attn_logit_softcapping"] = number_or_null(c.attention_softcap);
    json["final_logit_softcapping"] = number_or_null(c.logit_softcap);
    // transformers' Gemma2Model computes with the window even where no layer has it.
    json["sliding_window"] = c.windowed.empty() ? kDefaultWindow : c.sliding_window;
    print_layer_types(c, json);
    print_no_padding(json);
}

/// In Llama's files "post_attention_layernorm" is what the MLP begins with; here it normalises what
/// attention adds to the residual.
TensorNames gemma2_names() {
    TensorNames names = rotary_decoder_names();
    names.post_attention_norm = "post_attention_layernorm";
    names.mlp_norm = "pre_feedforward_layernorm";
    names.post_mlp_norm = "post_feedforward_layernorm";
    return names;
}

}  // namespace

ModelFamily families::gemma2() {
    return {.name = "gemma2",
            .architecture = "Gemma2ForCausalLM",
            .keys = {.activation = "hidden_activation"},
            .defaults = {.positions = 8192,
                         .activation = "gelu_pytorch_tanh",
                         .kv_heads = 4,
                         .head_size = 256,
                         .tied = true},
            .tensors = gemma2_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_gemma2,
            .read = read_gemma2,
            .print = print_gemma2};
}

}  // namespace vocabpipe
