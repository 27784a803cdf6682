// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/model_config_json.hpp"

#include "src/model/config_json/config_values.hpp"
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/known_keys.hpp"
#include "src/model/config_json/lora_keys.hpp"
#include "src/model/config_json/text_ends.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/support/names_of.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

const ModelFamily& family_of(const StrictJson& json) {
    const StrictJson type = json.at("model_type");
    const std::string name = type.text();
    if (const ModelFamily* const found = find_family(name)) return *found;
    const auto other = std::ranges::find(all_families(), name, &ModelFamily::other_name);
    if (!name.empty() && other != all_families().end()) return *other;
    type.fail("\"" + name.substr(0, 40) + "\" is not supported; use one of " + known_families() +
              nearest_family(name));
}

/// Refuses other values of keys of which this program supports only one value.
void refuse_others(const ConfigValues& file) {
    struct Needed {
        const char* key;
        bool value;
    };
    constexpr Needed kNeeded[] = {
        {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
        {"add_cross_attention", false}, {"use_bidirectional_attention", false},
        {"use_mrope", false},           {"is_causal", true}};
    for (const auto& [key, needed] : kNeeded) {
        if (file.flag(key, needed) == needed) continue;
        file.json().at(key).fail(std::string(needed ? "false" : "true") +
                                 " is not supported; it must be " + (needed ? "true" : "false"));
    }
    if (const auto quantized = file.given("quantization_config")) {
        quantized->fail("quantized weights are not supported; load the original weights");
    }
}

SoftmaxType read_softmax_type(const StrictJson& json) {
    const std::string name = json.text();
    if (const auto type = find_named(name, {SoftmaxType::vanilla, SoftmaxType::learnable})) {
        return *type;
    }
    json.fail("\"" + name.substr(0, 40) + "\" is not supported; use vanilla or learnable");
}

/// The key of models with ModelConfig::has_own_layers().
constexpr const char* kOwnLayersKey = "own_layers";

const char* activation_name(kernels::Activation activation) {
    switch (activation) {
        case kernels::Activation::silu:
            return "silu";
        case kernels::Activation::gelu:
            return "gelu";
        case kernels::Activation::gelu_tanh:
            break;
    }
    return "gelu_pytorch_tanh";
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& path) {
    const StrictJson json = StrictJson::parse(text, path);
    if (json.has(kOwnLayersKey)) {
        json.at(kOwnLayersKey)
            .fail("the model has layers of a program's own; only that program can load it");
    }
    const ModelFamily& family = family_of(json);
    const ConfigValues file(json, family);
    const ConfigKeys& keys = family.keys;
    ModelConfig c;
    c.num_layers = static_cast<int>(json.at(keys.layers).integer(1, UINT16_MAX));
    c.hidden_size = file.width(keys.hidden);
    c.num_attention_heads = json.at(keys.heads).integer(1, kMostHeads);
    c.vocab_size = json.at("vocab_size").integer(1, INT32_MAX);
    if (const auto depths = file.given(kPredictedKey)) {
        c.mtp_num_layers = static_cast<int>(depths->integer(0, kMostDepths));
    }
    set_family(c, family.name);
    refuse_others(file);
    c.tied = file.flag("tie_word_embeddings", family.defaults.tied);
    c.norm_epsilon = static_cast<float>(file.positive(keys.epsilon, family.defaults.epsilon));
    c.init_std = static_cast<float>(file.not_negative("initializer_range", c.init_std));
    if (const auto type = file.given(kSoftmaxTypeKey)) {
        c.softmax_type = read_softmax_type(*type);
        if (c.softmax_type == SoftmaxType::learnable && family.has_latents()) {
            type->fail("latent attention has no sinks");
        }
    }
    read_switches(file, c);
    family.read(file, c);
    check_layer_types(file, c);
    read_text_ends(file, c);
    if (const auto lora = file.given(kLoraKey)) c.lora = read_lora(*lora);
    refuse_unknown_keys(json);
    c.seq_length = std::min(c.seq_length, c.max_position_embeddings);
    if (c.kv_channels == 0 && !c.has_latents() && c.hidden_size % c.num_attention_heads != 0) {
        json.at(keys.heads)
            .fail(std::to_string(c.num_attention_heads) + ": must divide " + keys.hidden + " " +
                  std::to_string(c.hidden_size));
    }
    return c;
}

std::string print_model_config(const ModelConfig& c) {
    const ModelFamily& family = model_family(c.family);
    const ConfigKeys& keys = family.keys;
    nlohmann::ordered_json json;
    json["architectures"] = {family.architecture};
    json["model_type"] = family.name;
    json["vocab_size"] = c.vocab_size;
    json[keys.positions] = c.max_position_embeddings;
    json[keys.hidden] = c.hidden_size;
    json[keys.layers] = c.num_layers;
    if (c.mtp_num_layers > 0) json[kPredictedKey] = c.mtp_num_layers;
    json[keys.heads] = c.num_attention_heads;
    json[keys.ffn] = c.ffn_hidden_size;
    json[keys.activation] = activation_name(c.activation);
    json[keys.epsilon] = shortest(c.norm_epsilon);
    json["initializer_range"] = shortest(c.init_std);
    family.print(c, json);
    json["tie_word_embeddings"] = c.tied;
    print_text_ends(c, json);
    if (c.softmax_type != SoftmaxType::vanilla) json[kSoftmaxTypeKey] = to_string(c.softmax_type);
    if (c.lora.rank > 0) json[kLoraKey] = print_lora(c.lora);
    if (c.has_own_layers()) json[kOwnLayersKey] = true;
    json["torch_dtype"] = c.dtype == DType::bf16 ? "bfloat16" : "float32";
    return json.dump(2) + "\n";
}

}  // namespace vocabpipe
