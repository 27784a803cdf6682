// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <string>
#include <string_view>

namespace vocabpipe {

/// The model that a Hugging Face config.json describes: what the file says, and transformers'
/// defaults for what it leaves out. Sequence length, type and losses, which the file does not have,
/// are ModelConfig's defaults; the sequence length is at most the file's positions. Keys of
/// transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters, layer_types) are read. Values
/// that this program does not support (another model_type, activation or rope_type, ...) are an
/// InputFileError naming key and value; dropout, which is off here, and keys that do not change
/// what is computed are ignored. `path`: the file's name in messages.
[[nodiscard]] ModelConfig parse_model_config(std::string_view text, const std::string& path);

/// config.json for the family's class in transformers, in keys that both transformers 4 and 5 read.
[[nodiscard]] std::string print_model_config(const ModelConfig& config);

}  // namespace vocabpipe
