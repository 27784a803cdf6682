// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "src/model/tensor_names.hpp"
#include "vocabpipe/model_config.hpp"

#include <nlohmann/json.hpp>
#include <string>

// Shared code of families with a mixture of experts.

namespace vocabpipe {

/// Sets the published models' sizes where none are set: 8 experts, 2 per token.
void set_experts(ModelConfig& config);

/// Reads num_local_experts or num_experts, as transformers 5 and 4 call them (`experts` where there
/// is neither), and num_experts_per_tok (`top_k`). Refuses router noise. InputFileError for more
/// experts per token than experts.
void read_experts(const ConfigValues& file, int64_t experts, int64_t top_k, ModelConfig& config);
/// InputFileError for more experts per token than the experts that `key` names.
void check_per_token(const ConfigValues& file, const std::string& key, const ModelConfig& config);
/// num_experts_per_tok, router_aux_loss_coef, and a key that makes transformers omit router logits.
void print_experts(const ModelConfig& config, nlohmann::ordered_json& json);

/// decoder_sparse_step and mlp_only_layers: which layers have experts.
void read_sparse_layers(const ConfigValues& file, ModelConfig& config);
void print_sparse_layers(const ModelConfig& config, nlohmann::ordered_json& json);

// For ModelFamily::check: refuse what files of a family cannot express. UsageErrors with flag and
// remedy.

/// Layers with an MLP.
void refuse_dense_layers(const ModelConfig& config);
/// Experts of another size than --ffn-hidden-size.
void refuse_own_expert_size(const ModelConfig& config);
/// Weights that do not add up to 1.
void refuse_plain_weights(const ModelConfig& config);

/// Adds Qwen's and OLMoE's names: mlp.gate, mlp.experts.0.gate_proj.
void name_experts(TensorNames& names);

}  // namespace vocabpipe
