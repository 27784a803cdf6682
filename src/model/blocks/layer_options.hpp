// SPDX-License-Identifier: Apache-2.0
// Derives the options of a model's blocks from its configuration. No other place decides which
// layer has which blocks and options.
#pragma once

#include "src/model/blocks/decoder_layer.hpp"
#include "src/model/blocks/depth_projection.hpp"
#include "src/model/blocks/embedded_tokens.hpp"
#include "vocabpipe/model_config.hpp"

#include <optional>

namespace vocabpipe {

/// Rotary positions of a layer that has them.
[[nodiscard]] std::optional<Rope> rope_of_layer(const ModelConfig& config, int layer);

/// How ranks share a layer.
struct LayerTeams {
    int context = 1;  ///< C, ranks that share sequences
    ContextExchange context_exchange = {};
    int tensor = 1;                     ///< t, ranks that share it
    int expert = 1;                     ///< e, ranks that share its experts
    int expert_tensor = 1;              ///< x, ranks that share each expert; divides e
    double row_factor = kMoeRowFactor;  ///< ModelPartition::moe_row_factor
    ExpertPieces expert_pieces = {};    ///< of exchanges between expert ranks
    bool all_tokens = false;            ///< ExpertsOptions::all_tokens
};

// `layer`: number in the model, from 0; from num_layers on it is that of a depth of multi-token
// prediction, whose layer is of the kind of the model's last one. `tensor`: t, ranks that share the
// layer.

[[nodiscard]] AttentionOptions attention_options(const ModelConfig& config, int layer,
                                                 const LayerTeams& teams = {});
/// For a model with latents.
[[nodiscard]] LatentAttentionOptions latent_attention_options(const ModelConfig& config, int layer,
                                                              const LayerTeams& teams = {});
[[nodiscard]] MlpOptions mlp_options(const ModelConfig& config, int layer, int tensor = 1);
[[nodiscard]] FeedForwardOptions feed_forward_options(const ModelConfig& config, int layer,
                                                      const LayerTeams& teams = {});
[[nodiscard]] DecoderLayerOptions decoder_layer_options(const ModelConfig& config, int layer,
                                                        const LayerTeams& teams = {});

/// Whether the first layer reads anything else than rows of the embedding.
[[nodiscard]] bool has_embedded_tokens(const ModelConfig& config);
[[nodiscard]] EmbeddedTokensOptions embedded_tokens_options(const ModelConfig& config);
[[nodiscard]] NormOptions final_norm_options(const ModelConfig& config);

// `depth` of multi-token prediction, from 0: its tensors have the names of DeepSeek-V3's files,
// where depth 0 is layer num_layers.

[[nodiscard]] DepthProjectionOptions depth_projection_options(const ModelConfig& config, int depth);
/// After the depth's layer.
[[nodiscard]] NormOptions depth_norm_options(const ModelConfig& config, int depth);

}  // namespace vocabpipe
