// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al. 2023): Llama with a window in all layers, or in none. Ministral (2024) has
// a window in the layers that layer_types names; transformers reads a mistral with that key as a
// Ministral.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

#include <algorithm>

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
    read_layer_types(file, read_window(file), "", every_layer, c);
}

/// Prints layer_types only if layers differ, so that all other files stay those of Mistral's own
/// class.
void print_mistral(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    print_window(c, json);
    if (std::ranges::find(c.windowed, false) != c.windowed.end()) print_layer_types(c, json);
    print_no_padding(json);
}

}  // namespace

ModelFamily families::mistral() {
    return {.name = "mistral",
            .architecture = "MistralForCausalLM",
            .other_name = "ministral",
            .defaults = {.positions = 32 * 4096, .kv_heads = 8},
            .tensors = rotary_decoder_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_mistral,
            .read = read_mistral,
            .print = print_mistral};
}

}  // namespace vocabpipe
