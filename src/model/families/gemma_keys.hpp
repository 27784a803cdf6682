// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "src/model/tensor_names.hpp"
#include "vocabpipe/model_config.hpp"

#include <nlohmann/json.hpp>

// Names of tensors and keys of config.json that Gemma 2 and those after it share.

namespace vocabpipe {

/// Llama's, and norms of what goes into the residual stream. Llama's "post_attention_layernorm" is
/// what the MLP begins with; here it normalises what attention adds.
[[nodiscard]] TensorNames names_of_newer_gemmas();

/// A soft cap, where null stands for none. `missing`: where there is no such key.
[[nodiscard]] float read_softcap(const ConfigValues& file, const char* key, float missing);

/// Activation, attention_bias and query_pre_attn_scalar.
void read_newer_gemma(const ConfigValues& file, ModelConfig& config);
/// These, both soft caps, windows and all keys of a rotary decoder.
void print_newer_gemma(const ModelConfig& config, nlohmann::ordered_json& json);

}  // namespace vocabpipe
