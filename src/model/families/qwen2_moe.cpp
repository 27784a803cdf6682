// SPDX-License-Identifier: Apache-2.0
// Qwen 2's mixture of experts (Yang et al. 2024, arXiv 2407.10671): Qwen 2 with experts in some
// layers or in all; these layers also have an expert that computes every token and has its own
// gate.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/mixture.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kQwen2Experts = 60, kQwen2PerToken = 4;            // transformers' defaults
constexpr int64_t kQwen2ExpertSize = 1408, kQwen2SharedSize = 5632;  // likewise

void set_qwen2_moe(ModelConfig& c) {
    set_rotary_decoder(c);
    set_experts(c);
    c.qkv_bias = true;
    c.moe.shared_expert = true;
}

void read_qwen2_moe(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    c.qkv_bias = file.flag("qkv_bias", true);
    const bool windows = file.flag("use_sliding_window", false);
    // transformers 4 and 5 give it to other layers where layer_types does not say which.
    if (windows && !file.given("layer_types")) {
        file.json()
            .at("use_sliding_window")
            .fail("true is not supported without layer_types; add layer_types");
    }
    read_layer_types(
        file, windows ? read_window(file) : 0, " with use_sliding_window true",
        [](int /*layer*/) { return false; }, c);
    read_experts(file, kQwen2Experts, kQwen2PerToken, c);
    c.moe.ffn_hidden_size =
        file.size("moe_intermediate_size", kQwen2ExpertSize, kQwen2ExpertSize, kWidest);
    c.moe.shared_ffn_hidden_size =
        file.size("shared_expert_intermediate_size", kQwen2SharedSize, kQwen2SharedSize, kWidest);
    c.moe.normalize = file.flag("norm_topk_prob", false);
    read_sparse_layers(file, c);
}

void print_qwen2_moe(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    json["qkv_bias"] = c.qkv_bias;
    json["use_sliding_window"] = !c.windowed.empty();
    print_window(c, json);
    print_layer_types(c, json);
    json["num_experts"] = c.moe.experts;
    json["moe_intermediate_size"] = c.expert_ffn_hidden_size();
    json["shared_expert_intermediate_size"] = c.shared_ffn_hidden_size();
    json["norm_topk_prob"] = c.moe.normalize;
    print_sparse_layers(c, json);
    print_experts(c, json);
    print_no_padding(json);
}

TensorNames qwen2_moe_names() {
    TensorNames names = rotary_decoder_names();
    name_experts(names);
    names.shared_gate = "mlp.shared_expert_gate";
    names.shared_expert = "mlp.shared_expert.";
    return names;
}

}  // namespace

ModelFamily families::qwen2_moe() {
    return {.name = "qwen2_moe",
            .architecture = "Qwen2MoeForCausalLM",
            .defaults = {.positions = 32768, .kv_heads = 16},
            .tensors = qwen2_moe_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_qwen2_moe,
            .read = read_qwen2_moe,
            .print = print_qwen2_moe};
}

}  // namespace vocabpipe
