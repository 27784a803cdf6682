// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/decoder_layer.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/blocks/linear.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>

namespace vocabpipe {

/// A depth of multi-token prediction without its weights: for sizes and costs. It norms the hidden
/// state and the embedding of the next token, projects both together to h columns, and goes through
/// a layer like the model's last and a norm of its own. The output layer is shared.
struct CountedDepth {
    explicit CountedDepth(const ModelConfig& config, const LayerTeams& teams = {});

    /// Per token, of the depth alone.
    [[nodiscard]] BlockWork work(int64_t seq_length) const;

    ParameterCount parameters;
    Norm hidden_norm, embedding_norm;
    Linear projection;
    DecoderLayer layer;
    Norm final_norm;
};

}  // namespace vocabpipe
