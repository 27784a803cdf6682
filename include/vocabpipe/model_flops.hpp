// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/microbatch_lengths.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/recompute.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Forward FLOPs per token (docs/performance.md): matrix products only, causal attention counted
/// half, windows counted. Depths of multi-token prediction count as in Megatron: a projection of
/// 2 h to h columns and a layer each, and a row of the output layer more.
[[nodiscard]] double forward_flops_per_token(const ModelConfig& config);
/// Those of the transformer layers, without depths and output layer.
[[nodiscard]] double layers_flops_per_token(const ModelConfig& config);
/// [layer] Those of each layer.
[[nodiscard]] std::vector<double> layer_flops_per_token(const ModelConfig& config);
/// Those of the layers for a whole sequence of `seq_length` tokens instead of the config's.
[[nodiscard]] double layers_flops_of_sequence(ModelConfig config, int64_t seq_length);
/// Those of all depths of multi-token prediction, without the output layer.
[[nodiscard]] double mtp_flops_per_token(const ModelConfig& config);
/// The output layer with all its rows, in units of one transformer layer, by FLOPs: q of layer
/// redistribution.
[[nodiscard]] double output_layer_in_layers(const ModelConfig& config);
/// All depths of multi-token prediction in the same unit; 0 in a model without layers.
[[nodiscard]] double mtp_in_layers(const ModelConfig& config);

/// What microbatches take whose sequences have `seq_length` tokens instead of the config's
/// seq_length: layers by their FLOPs, everything else by its tokens.
[[nodiscard]] LengthShares length_shares(const ModelConfig& config, Recompute recompute,
                                         int64_t seq_length);

}  // namespace vocabpipe
