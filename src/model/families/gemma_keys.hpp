// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "src/model/tensor_names.hpp"
#include "vocabpipe/model_config.hpp"

#include <nlohmann/json.hpp>

// Names of tensors and keys of config.json that Gemma 2 and later Gemmas share.

namespace vocabpipe {

/// Llama's names, and norms of what is added to the residual stream. Llama's
/// "post_attention_layernorm" normalises the MLP's input; here it normalises attention's output.
[[nodiscard]] TensorNames names_of_newer_gemmas();

/// Reads a soft cap; null stands for none. `missing`: the default without the key.
[[nodiscard]] float read_softcap(const ConfigValues& file, const char* key, float missing);

/// Activation and query_pre_attn_scalar.
void read_newer_gemma(const ConfigValues& file, ModelConfig& config);
/// The keys of read_newer_gemma(), both soft caps, windows and all keys of a rotary decoder.
void print_newer_gemma(const ModelConfig& config, nlohmann::ordered_json& json);

}  // namespace vocabpipe
