// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tensor.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// GPT-2 style decoder: learned positions, pre-LayerNorm, GELU (tanh), causal attention.
struct ModelConfig {
    int num_layers = 2;
    int64_t hidden_size = 64;
    int64_t ffn_hidden_size = 256;
    int64_t num_attention_heads = 4;
    int64_t seq_length = 64;
    int64_t max_position_embeddings = 64;
    int64_t vocab_size = 256;
    bool tied = true;  ///< GPT-2 shares input and output embedding
    DType dtype = DType::fp32;
    float layer_norm_epsilon = 1e-5F;
    float init_std = 0.02F;
    float label_smoothing = 0;
    float z_loss = 0;

    [[nodiscard]] int64_t head_size() const { return hidden_size / num_attention_heads; }
    /// Throws UsageError naming flag, value and limit.
    void check() const;
};

/// One logical tensor of the model, whatever ranks hold it. The index in logical_parameters() is
/// its id: it seeds the initialisation and orders the gradient norm, so neither depends on p.
struct LogicalParameter {
    std::string name;  ///< Hugging Face's; linear weights are held as [out, in]
    int64_t rows = 0;
    int64_t cols = 0;
    float init_std = 0;  ///< 0: constant
    float init_constant = 0;
    bool weight_decay = false;
};

/// Ids: 0 wte, 1 wpe, then 12 per layer, then ln_f weight and bias, then lm_head unless tied.
[[nodiscard]] std::vector<LogicalParameter> logical_parameters(const ModelConfig& config);
[[nodiscard]] constexpr int wte_id() {
    return 0;
}
[[nodiscard]] constexpr int wpe_id() {
    return 1;
}
[[nodiscard]] constexpr int layer_id(int layer) {
    return 2 + 12 * layer;
}
[[nodiscard]] inline int final_norm_id(const ModelConfig& config) {
    return layer_id(config.num_layers);
}
[[nodiscard]] inline int output_id(const ModelConfig& config) {
    return config.tied ? wte_id() : final_norm_id(config) + 2;
}

/// Forward FLOPs per token (docs/performance.md): matrix products only, causal attention counted
/// half.
[[nodiscard]] double forward_flops_per_token(const ModelConfig& config);
/// The output layer in units of one transformer layer, by FLOPs: q of layer redistribution.
[[nodiscard]] double output_layer_in_layers(const ModelConfig& config);

}  // namespace vocabpipe
