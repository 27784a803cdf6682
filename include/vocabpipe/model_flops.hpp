// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Forward FLOPs per token (docs/performance.md): matrix products only, causal attention counted
/// half, windows counted.
[[nodiscard]] double forward_flops_per_token(const ModelConfig& config);
/// The same without the output layer.
[[nodiscard]] double layers_flops_per_token(const ModelConfig& config);
/// The output layer in units of one transformer layer, by FLOPs: q of layer redistribution.
[[nodiscard]] double output_layer_in_layers(const ModelConfig& config);

}  // namespace vocabpipe
