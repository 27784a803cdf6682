// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"
#include "vocabpipe/lora_config.hpp"

#include <nlohmann/json.hpp>

namespace vocabpipe {

/// Key of adapters in the config.json of a step.
inline constexpr const char* kLoraKey = "vocabpipe_lora";
/// LoraConfig::target_modules in files and flags, where it is empty.
inline constexpr const char* kAllLinear = "all-linear";

/// The keys r, lora_alpha and target_modules, as PEFT's adapter_config.json has them. Regular
/// expressions in place of target_modules are an InputFileError.
[[nodiscard]] LoraConfig read_lora(const StrictJson& json);
/// The same keys.
[[nodiscard]] nlohmann::ordered_json print_lora(const LoraConfig& lora);

}  // namespace vocabpipe
