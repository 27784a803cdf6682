// SPDX-License-Identifier: Apache-2.0
// Llama 1, 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024).
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

void set_llama(ModelConfig& c) {
    set_rotary_decoder(c);
    c.norm_epsilon = 1e-5F;  // as published since Llama 2
}

void read_llama(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
}

void print_llama(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    print_no_padding(json);
}

}  // namespace

ModelFamily families::llama() {
    return {.name = "llama",
            .architecture = "LlamaForCausalLM",
            .defaults = {.positions = 2048},
            .switches = {{"attention_bias"}, {"mlp_bias"}},
            .tensors = rotary_decoder_names(),
            .no_weights = {kRotaryFrequencies},
            .parts = MegatronParts{.swiglu = true, .rms_norm = true, .rope = true},
            .set = set_llama,
            .read = read_llama,
            .print = print_llama};
}

}  // namespace vocabpipe
