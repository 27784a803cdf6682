// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/depth_projection.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/blocks/model_layer.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>

namespace vocabpipe {

/// A depth of multi-token prediction without its weights: for sizes and costs.
struct CountedDepth {
    explicit CountedDepth(const ModelConfig& config, const LayerTeams& teams = {});

    /// Per token, of the depth alone.
    [[nodiscard]] BlockWork work(int64_t seq_length) const;

    ParameterCount parameters;
    DepthProjection projection;
    ModelLayer layer;
    Norm final_norm;
};

}  // namespace vocabpipe
