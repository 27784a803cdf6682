// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "vocabpipe/model_config.hpp"

#include <nlohmann/json.hpp>

// bos_token_id and eos_token_id: which tokens begin and end a text. Nothing is computed with them;
// programs that generate with the model read them from its config.json.

namespace vocabpipe {

/// Ignores values that are no tokens of the vocabulary, such as transformers' defaults in small
/// models.
void read_text_ends(const ConfigValues& file, ModelConfig& config);
/// null where the model names none.
void print_text_ends(const ModelConfig& config, nlohmann::ordered_json& json);

}  // namespace vocabpipe
