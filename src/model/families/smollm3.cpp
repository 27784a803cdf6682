// SPDX-License-Identifier: Apache-2.0
// SmolLM 3 (Hugging Face 2025): Llama without rotary positions in every fourth layer (Yang et al.
// 2025, arXiv 2501.18795). Where use_sliding_window says so, these layers have a window.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kRopeInterval = 4;    // transformers' default
constexpr double kRopeTheta = 2000000;  // likewise

/// `has`: [layer]
void set_roped(ModelConfig& c, std::vector<bool> has) {
    const bool all = std::ranges::find(has, false) == has.end();
    c.roped = all ? std::vector<bool>() : std::move(has);
}

/// All layers but the last of each `interval`.
std::vector<bool> roped_by_interval(const ModelConfig& c, int64_t interval) {
    std::vector<bool> has;
    for (int layer = 0; layer < c.num_layers; ++layer) has.push_back((layer + 1) % interval != 0);
    return has;
}

void set_smollm3(ModelConfig& c) {
    set_rotary_decoder(c);
    c.rope.theta = kRopeTheta;
    set_roped(c, roped_by_interval(c, kRopeInterval));
}

/// Reads no_rope_layers, where 1 is a layer with rotary positions.
std::vector<bool> read_roped(const ConfigValues& file, const ModelConfig& c) {
    const auto list = file.given("no_rope_layers");
    if (!list) {
        const auto interval = file.given("no_rope_layer_interval");
        return roped_by_interval(c, interval ? interval->integer(1, INT32_MAX) : kRopeInterval);
    }
    std::vector<bool> has;
    for (const StrictJson& entry : list->items(UINT16_MAX)) has.push_back(entry.integer(0, 1) == 1);
    const auto layers = static_cast<size_t>(c.num_layers);
    if (has.size() < layers) {
        list->fail("has " + std::to_string(has.size()) + " entries, " + file.keys().layers +
                   " is " + std::to_string(layers));
    }
    has.resize(layers);
    return has;
}

void read_smollm3(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    set_roped(c, read_roped(file, c));
    const bool windows = file.flag("use_sliding_window", false) && file.given("sliding_window");
    read_layer_types(
        file, windows ? read_window(file) : 0, " with use_sliding_window true",
        [&](int layer) { return !c.has_rope(layer); }, c);
}

void print_smollm3(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    std::vector<int> has;
    for (int layer = 0; layer < c.num_layers; ++layer) has.push_back(c.has_rope(layer) ? 1 : 0);
    json["no_rope_layers"] = has;
    json["use_sliding_window"] = !c.windowed.empty();
    print_window(c, json);
    print_layer_types(c, json);
    print_no_padding(json);
}

}  // namespace

ModelFamily families::smollm3() {
    return {.name = "smollm3",
            .architecture = "SmolLM3ForCausalLM",
            .defaults = {.positions = 32768, .kv_heads = 4, .rope_theta = kRopeTheta, .tied = true},
            .switches = {{"attention_bias"}, {"mlp_bias"}},
            .tensors = rotary_decoder_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_smollm3,
            .read = read_smollm3,
            .print = print_smollm3};
}

}  // namespace vocabpipe
