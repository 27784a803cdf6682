// SPDX-License-Identifier: Apache-2.0
// The folder in which PEFT keeps adapters: adapter_config.json and adapter_model.safetensors.
#pragma once

#include "vocabpipe/model_config.hpp"

#include <string>
#include <string_view>

namespace vocabpipe {

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
inline constexpr std::string_view kAdapterFile = "adapter_model.safetensors";

/// Rank, scale and layers of the adapters that an adapter_config.json describes. InputFileError for
/// what this program does not compute: another method than LoRA, DoRA, rsLoRA, biases, modules that
/// are trained whole, layers of different ranks. Dropout, which is off here, is ignored. `path`:
/// the file's name in messages.
[[nodiscard]] LoraConfig parse_adapter_config(std::string_view text, const std::string& path);
/// parse_adapter_config() of the file in PEFT's folder.
[[nodiscard]] LoraConfig load_adapter_config(const std::string& folder);

/// adapter_config.json of the model's adapters.
[[nodiscard]] std::string print_adapter_config(const ModelConfig& config);

}  // namespace vocabpipe
