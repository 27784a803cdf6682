// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "src/model/families/windows.hpp"
#include "vocabpipe/model_config.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

// Keys of config.json that say which layers of a model see only a window of tokens.

namespace vocabpipe {

/// sliding_window, where null stands for none.
[[nodiscard]] int64_t read_window(const ConfigValues& file);

/// sliding_window: null where no layer has one.
void print_window(const ModelConfig& config, nlohmann::ordered_json& json);

/// Sets windows by layer_types or, if the file has none, by `otherwise`. `given_by` ends the
/// message about a layer with a window whose size is missing.
void read_layer_types(const ConfigValues& file, int64_t window, std::string_view given_by,
                      const HasWindow& otherwise, ModelConfig& config);
/// For every family, after its own keys: layer_types, if given, must have one entry per layer and
/// agree with the layers' windows. So a family that ignores the key, as its class in transformers
/// does, refuses a file that means another model.
void check_layer_types(const ConfigValues& file, const ModelConfig& config);
/// One entry per layer.
void print_layer_types(const ModelConfig& config, nlohmann::ordered_json& json);

/// Qwen's keys: use_sliding_window, and the window from max_window_layers on or in layer_types.
void read_late_windows(const ConfigValues& file, ModelConfig& config);
void print_late_windows(const ModelConfig& config, nlohmann::ordered_json& json);

}  // namespace vocabpipe
