// SPDX-License-Identifier: Apache-2.0
// dots.llm1 (Huo et al. 2025, arXiv 2506.05767): Qwen 3's attention and DeepSeek-V3's mixture of
// experts.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/grouped_mixture.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

constexpr GroupedMixtureDefaults kDotsMixture{.expert_size = 1408};  // transformers' defaults
constexpr int64_t kDotsFullLayers = 62;  // likewise, of max_window_layers

void set_dots1(ModelConfig& c) {
    set_rotary_decoder(c);
    set_grouped_mixture(c);
    c.qk_norm = true;
}

/// Unless layer_types says otherwise, the layers from max_window_layers on have a window.
void read_windows(const ConfigValues& file, ModelConfig& c) {
    const auto first = file.given("max_window_layers");
    const int64_t full = first ? first->integer(0, INT32_MAX) : kDotsFullLayers;
    read_layer_types(
        file, read_window(file), "", [&](int layer) { return layer >= full; }, c);
}

void read_dots1(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    read_windows(file, c);
    read_grouped_mixture(file, kDotsMixture, c);
}

void print_dots1(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    int full = 0;
    while (full < c.num_layers && c.window(full) == 0) ++full;
    json["max_window_layers"] = full;
    print_window(c, json);
    print_layer_types(c, json);
    print_grouped_mixture(c, json);
    print_no_padding(json);
}

TensorNames dots1_names() {
    TensorNames names = rotary_decoder_names();
    name_grouped_mixture(names);
    return names;
}

}  // namespace

ModelFamily families::dots1() {
    return {.name = "dots1",
            .architecture = "Dots1ForCausalLM",
            .defaults = {.positions = 2048, .kv_heads = 32},
            .switches = {{"attention_bias"}},
            .tensors = dots1_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_dots1,
            .read = read_dots1,
            .print = print_dots1,
            .check = check_grouped_mixture};
}

}  // namespace vocabpipe
