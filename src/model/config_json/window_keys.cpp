// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/window_keys.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr std::string_view kWindowed = "sliding_attention";
constexpr std::string_view kFull = "full_attention";
constexpr size_t kMostLayers = UINT16_MAX;

/// Layers before the first one with a window.
int64_t full_layers(const ConfigValues& file) {
    constexpr int64_t kDefault = 28;  // transformers'
    const auto value = file.given("max_window_layers");
    return value ? value->integer(0, INT32_MAX) : kDefault;
}

/// layer_types: whether each layer has a window. One entry per layer.
std::vector<bool> windowed_by(const ConfigValues& file, const StrictJson& types, size_t layers) {
    const std::vector<StrictJson> entries = types.items(kMostLayers);
    if (entries.size() != layers) {
        types.fail("has " + std::to_string(entries.size()) + " entries, but " + file.keys().layers +
                   " is " + std::to_string(layers));
    }
    std::vector<bool> windowed;
    for (const StrictJson& entry : entries) {
        const std::string type = entry.text();
        if (type != kWindowed && type != kFull) {
            entry.fail("\"" + type.substr(0, 40) + "\" is not supported; use " +
                       std::string(kWindowed) + " or " + std::string(kFull));
        }
        windowed.push_back(type == kWindowed);
    }
    return windowed;
}

}  // namespace

int64_t read_window(const ConfigValues& file) {
    return file.size("sliding_window", kDefaultWindow, 0, kMostPositions);
}

void read_layer_types(const ConfigValues& file, int64_t window, std::string_view given_by,
                      const HasWindow& otherwise, ModelConfig& c) {
    const auto types = file.given("layer_types");
    if (!types) {
        set_windows(c, window, otherwise);
        return;
    }
    const std::vector<bool> windowed = windowed_by(file, *types, static_cast<size_t>(c.num_layers));
    const auto first = std::ranges::find(windowed, true);
    if (window == 0 && first != windowed.end()) {
        types->items(kMostLayers)[static_cast<size_t>(first - windowed.begin())].fail(
            std::string(kWindowed) + ", but no sliding_window is set" + std::string(given_by));
    }
    set_windows(c, window, [&](int layer) { return windowed[static_cast<size_t>(layer)]; });
}

void check_layer_types(const ConfigValues& file, const ModelConfig& c) {
    const auto types = file.given("layer_types");
    if (!types) return;
    const std::vector<bool> windowed = windowed_by(file, *types, static_cast<size_t>(c.num_layers));
    for (int layer = 0; layer < c.num_layers; ++layer) {
        const bool says = windowed[static_cast<size_t>(layer)];
        if (says == (c.window(layer) > 0)) continue;
        types->items(kMostLayers)[static_cast<size_t>(layer)].fail(
            std::string(says ? kWindowed : kFull) + ", but the layer has " +
            (says ? "no window" : "the window of sliding_window") + " in " + c.family +
            ", where transformers passes over layer_types; remove layer_types, or use a family "
            "that reads it, as mistral does");
    }
}

void print_window(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["sliding_window"] = nullptr;
    if (!c.windowed.empty()) json["sliding_window"] = c.sliding_window;
}

void print_layer_types(const ModelConfig& c, nlohmann::ordered_json& json) {
    nlohmann::ordered_json types = nlohmann::ordered_json::array();
    for (int i = 0; i < c.num_layers; ++i) types.push_back(c.window(i) > 0 ? kWindowed : kFull);
    json["layer_types"] = std::move(types);
}

void read_late_windows(const ConfigValues& file, ModelConfig& c) {
    const int64_t window = file.flag("use_sliding_window", false) ? read_window(file) : 0;
    read_layer_types(
        file, window, " with use_sliding_window true",
        [&](int layer) { return layer >= full_layers(file); }, c);
}

void print_late_windows(const ModelConfig& c, nlohmann::ordered_json& json) {
    int first = 0;
    while (first < c.num_layers && c.window(first) == 0) ++first;
    const bool any = first < c.num_layers;
    json["use_sliding_window"] = any;
    json["max_window_layers"] = first;
    print_window(c, json);
    print_layer_types(c, json);
}

}  // namespace vocabpipe
