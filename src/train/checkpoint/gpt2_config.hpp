// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/model_config.hpp"

#include <string>
#include <string_view>

namespace vocabpipe {

/// Sizes in a Hugging Face config.json of GPT-2; those that it does not have (sequence length,
/// type, losses) are the defaults. What this model does not compute (another model_type or
/// activation, scale_attn_by_inverse_layer_idx, ...) is an InputFileError by name.
[[nodiscard]] ModelConfig parse_gpt2_config(std::string_view text, const std::string& path);

/// InputFileError naming key, both values and the flag, if the run's model is another one.
void check_same_model(const ModelConfig& file, const std::string& path, const ModelConfig& run);

/// config.json for GPT2LMHeadModel.
[[nodiscard]] std::string print_gpt2_config(const ModelConfig& config);

}  // namespace vocabpipe
