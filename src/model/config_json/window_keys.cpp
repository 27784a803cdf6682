// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/window_keys.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr std::string_view kWindowed = "sliding_attention";
constexpr std::string_view kFull = "full_attention";

/// Layers before the first one with a window.
int64_t full_layers(const ConfigValues& file) {
    constexpr int64_t kDefault = 28;  // transformers'
    const auto value = file.given("max_window_layers");
    return value ? value->integer(0, INT32_MAX) : kDefault;
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
    const auto layers = static_cast<size_t>(c.num_layers);
    const std::vector<StrictJson> entries = types->items(layers);
    if (entries.size() != layers) {
        types->fail("has " + std::to_string(entries.size()) + " entries, but " +
                    file.keys().layers + " is " + std::to_string(layers));
    }
    std::vector<bool> windowed;
    for (const StrictJson& entry : entries) {
        const std::string type = entry.text();
        windowed.push_back(type == kWindowed);
        if (type == kFull || (type == kWindowed && window > 0)) continue;
        if (type == kWindowed) {
            entry.fail(std::string(kWindowed) + ", but no sliding_window is set" +
                       std::string(given_by));
        }
        entry.fail("\"" + type.substr(0, 40) + "\" is not supported; use " +
                   std::string(kWindowed) + " or " + std::string(kFull));
    }
    set_windows(c, window, [&](int layer) { return windowed[static_cast<size_t>(layer)]; });
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
