// SPDX-License-Identifier: Apache-2.0
// Mixtral (Jiang et al. 2024, arXiv 2401.04088): Mistral with a mixture of experts in every layer,
// the weights of a token's experts adding up to 1.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/mixture.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

void set_mixtral(ModelConfig& c) {
    set_rotary_decoder(c);
    set_experts(c);
    c.norm_epsilon = 1e-5F;  // as published
    c.rope.theta = 1e6;
    set_windows(c, c.sliding_window, every_layer);
}

void read_mixtral(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    set_windows(c, file.size("sliding_window", 0, 0, kMostPositions), every_layer);
    read_experts(file, 8, 2, c);
}

void print_mixtral(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    print_window(c, json);
    json["num_local_experts"] = c.moe.experts;
    print_experts(c, json);
    json["router_jitter_noise"] = 0.0;
    print_no_padding(json);
}

void check_mixtral(const ModelConfig& c) {
    refuse_dense_layers(c);
    refuse_own_expert_size(c);
    refuse_plain_weights(c);
}

TensorNames mixtral_names() {
    TensorNames names = rotary_decoder_names();
    names.router = "block_sparse_moe.gate";
    names.experts = "block_sparse_moe.experts.";
    names.expert_gate = "w1";
    names.expert_up = "w3";
    names.expert_down = "w2";
    names.stacked_experts = "mlp.experts.";
    names.stacked_router = "mlp.gate";
    return names;
}

}  // namespace

ModelFamily families::mixtral() {
    return {.name = "mixtral",
            .architecture = "MixtralForCausalLM",
            .defaults = {.positions = 4096 * 32, .epsilon = 1e-5, .kv_heads = 8, .rope_theta = 1e6},
            .tensors = mixtral_names(),
            .no_weights = {kRotaryFrequencies},
            .parts = MegatronParts{.swiglu = true, .rms_norm = true, .rope = true, .experts = true},
            .set = set_mixtral,
            .read = read_mixtral,
            .print = print_mixtral,
            .check = check_mixtral};
}

}  // namespace vocabpipe
