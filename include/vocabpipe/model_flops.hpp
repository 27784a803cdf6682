// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/microbatch_lengths.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/recompute.hpp"

#include <cstdint>

namespace vocabpipe {

/// Forward FLOPs per token (docs/performance.md): matrix products only, causal attention counted
/// half, windows counted.
[[nodiscard]] double forward_flops_per_token(const ModelConfig& config);
/// The same without the output layer.
[[nodiscard]] double layers_flops_per_token(const ModelConfig& config);
/// The output layer in units of one transformer layer, by FLOPs: q of layer redistribution.
[[nodiscard]] double output_layer_in_layers(const ModelConfig& config);

/// What microbatches take whose sequences have `seq_length` tokens instead of the config's
/// seq_length: layers by their FLOPs, everything else by its tokens.
[[nodiscard]] LengthShares length_shares(const ModelConfig& config, Recompute recompute,
                                         int64_t seq_length);

}  // namespace vocabpipe
