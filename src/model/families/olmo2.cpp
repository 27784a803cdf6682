// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (Team OLMo 2025, arXiv 2501.00656): Llama with norms of the outputs of attention and MLP
// instead of their inputs, and of q and k, each over all of its heads.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

void set_olmo2(ModelConfig& c) {
    set_rotary_decoder(c);
    c.pre_norms = false;
    c.post_norms = true;
    c.qk_norm = true;
    c.qk_norm_by_head = false;
}

void read_olmo2(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
}

void print_olmo2(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    print_no_padding(json);
}

/// In Llama's files "post_attention_layernorm" normalises the MLP's input; here it normalises
/// attention's output.
TensorNames olmo2_names() {
    TensorNames names = rotary_decoder_names();
    names.attention_norm = {};
    names.mlp_norm = {};
    names.post_attention_norm = "post_attention_layernorm";
    names.post_mlp_norm = "post_feedforward_layernorm";
    return names;
}

}  // namespace

ModelFamily families::olmo2() {
    return {.name = "olmo2",
            .architecture = "Olmo2ForCausalLM",
            .defaults = {.positions = 2048, .epsilon = 1e-5},
            .switches = {{"attention_bias"}},
            .tensors = olmo2_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_olmo2,
            .read = read_olmo2,
            .print = print_olmo2};
}

}  // namespace vocabpipe
