// SPDX-License-Identifier: Apache-2.0
// Qwen 3 (Yang et al. 2025): Llama with norms of the heads of q and k, and a window in its last
// layers where use_sliding_window says so.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

void set_qwen3(ModelConfig& c) {
    set_rotary_decoder(c);
    c.qk_norm = true;
}

void read_qwen3(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    read_late_windows(file, c);
}

void print_qwen3(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    print_late_windows(c, json);
    print_no_padding(json);
}

}  // namespace

ModelFamily families::qwen3() {
    return {.name = "qwen3",
            .architecture = "Qwen3ForCausalLM",
            .defaults = {.positions = 32768, .kv_heads = 32, .head_size = 128},
            .switches = {{"attention_bias"}},
            .tensors = rotary_decoder_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_qwen3,
            .read = read_qwen3,
            .print = print_qwen3};
}

}  // namespace vocabpipe
