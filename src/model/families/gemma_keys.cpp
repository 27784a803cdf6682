// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/gemma_keys.hpp"

#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/rotary_decoder.hpp"

#include <cmath>

namespace vocabpipe {

namespace {

constexpr double kQueryScalar = 256;  // transformers' default

/// null for 0, where transformers has None.
nlohmann::ordered_json number_or_null(float value) {
    if (value == 0) return nullptr;
    return shortest(value);
}

/// The number whose reciprocal square root scales the scores; an integer in transformers.
nlohmann::ordered_json query_scalar(const ModelConfig& c) {
    if (c.attention_scale == 0) return c.head_size();
    const double scalar = 1 / (static_cast<double>(c.attention_scale) * c.attention_scale);
    const double whole = std::round(scalar);
    if (static_cast<float>(1 / std::sqrt(whole)) == c.attention_scale) {
        return static_cast<int64_t>(whole);
    }
    return scalar;
}

}  // namespace

TensorNames names_of_newer_gemmas() {
    TensorNames names = rotary_decoder_names();
    names.post_attention_norm = "post_attention_layernorm";
    names.mlp_norm = "pre_feedforward_layernorm";
    names.post_mlp_norm = "post_feedforward_layernorm";
    return names;
}

float read_softcap(const ConfigValues& file, const char* key, float missing) {
    return file.json().has(key) ? static_cast<float>(file.positive(key, 0)) : missing;
}

void read_newer_gemma(const ConfigValues& file, ModelConfig& c) {
    c.activation = read_activation(file, kGateNames);
    const double scalar = file.positive("query_pre_attn_scalar", kQueryScalar);
    const bool usual = scalar == static_cast<double>(c.head_size());
    c.attention_scale = usual ? 0 : static_cast<float>(1 / std::sqrt(scalar));
}

void print_newer_gemma(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    json["query_pre_attn_scalar"] = query_scalar(c);
    json["attn_logit_softcapping"] = number_or_null(c.attention_softcap);
    json["final_logit_softcapping"] = number_or_null(c.logit_softcap);
    // transformers computes with the window even where no layer has it.
    json["sliding_window"] = c.windowed.empty() ? kDefaultWindow : c.sliding_window;
    print_layer_types(c, json);
    print_no_padding(json);
}

}  // namespace vocabpipe
