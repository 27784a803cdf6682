// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al. 2023): Llama with a window in all layers, or in none.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

void set_mistral(ModelConfig& c) {
    set_rotary_decoder(c);
    c.norm_epsilon = 1e-5F;  // as published
    set_windows(c, c.sliding_window > 0 ? c.sliding_window : kDefaultWindow, every_layer);
}

void read_mistral(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    set_windows(c, read_window(file), every_layer);
}

void print_mistral(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, {}, json);
    print_window(c, json);
    print_no_padding(json);
}

}  // namespace

ModelFamily families::mistral() {
    return {.name = "mistral",
            .architecture = "MistralForCausalLM",
            .defaults = {.positions = 32 * 4096, .kv_heads = 8},
            .tensors = rotary_decoder_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_mistral,
            .read = read_mistral,
            .print = print_mistral};
}

}  // namespace vocabpipe
