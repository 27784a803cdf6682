// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases of q, k and v, and a window in its last
// layers where use_sliding_window says so.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

void set_qwen2(ModelConfig& c) {
    set_rotary_decoder(c);
    c.qkv_bias = true;
}

void read_qwen2(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    read_late_windows(file, c);
}

void print_qwen2(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    print_late_windows(c, json);
    print_no_padding(json);
}

}  // namespace

ModelFamily families::qwen2() {
    return {.name = "qwen2",
            .architecture = "Qwen2ForCausalLM",
            .defaults = {.positions = 32768, .kv_heads = 32},
            .tensors = rotary_decoder_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_qwen2,
            .read = read_qwen2,
            .print = print_qwen2};
}

}  // namespace vocabpipe
