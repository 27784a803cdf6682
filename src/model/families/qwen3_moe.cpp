// SPDX-License-Identifier: Apache-2.0
// Qwen 3's mixture of experts (Yang et al. 2025): Qwen 3 with experts, which have their own size,
// in some layers or in all.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/mixture.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kQwen3ExpertSize = 768;  // transformers' default

void set_qwen3_moe(ModelConfig& c) {
    set_rotary_decoder(c);
    set_experts(c);
    c.qk_norm = true;
}

void read_qwen3_moe(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    // transformers' class has the window in all layers and ignores max_window_layers.
    set_windows(c, file.flag("use_sliding_window", false) ? read_window(file) : 0, every_layer);
    read_experts(file, 128, 8, c);
    c.moe.ffn_hidden_size =
        file.size("moe_intermediate_size", kQwen3ExpertSize, kQwen3ExpertSize, kWidest);
    c.moe.normalize = file.flag("norm_topk_prob", false);
    read_sparse_layers(file, c);
}

void print_qwen3_moe(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    json["use_sliding_window"] = !c.windowed.empty();
    print_window(c, json);
    json["num_experts"] = c.moe.experts;
    json["moe_intermediate_size"] = c.expert_ffn_hidden_size();
    json["norm_topk_prob"] = c.moe.normalize;
    print_sparse_layers(c, json);
    print_experts(c, json);
    print_no_padding(json);
}

TensorNames qwen3_moe_names() {
    TensorNames names = rotary_decoder_names();
    name_experts(names);
    return names;
}

}  // namespace

ModelFamily families::qwen3_moe() {
    return {.name = "qwen3_moe",
            .architecture = "Qwen3MoeForCausalLM",
            .defaults = {.positions = 32768, .kv_heads = 4, .head_size = 0},
            .switches = {{"attention_bias"}},
            .tensors = qwen3_moe_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_qwen3_moe,
            .read = read_qwen3_moe,
            .print = print_qwen3_moe};
}

}  // namespace vocabpipe
