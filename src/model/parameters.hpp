// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/parameter_source.hpp"
#include "src/model/tensor_names.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// Ids first, first + 1, ... end - 1.
struct ParameterRange {
    int first = 0;
    int end = 0;
};

/// All logical parameters of a model, and which part of the model each belongs to.
struct ModelParameters {
    std::vector<LogicalParameter> all;   ///< [id]
    int embedding = 0;                   ///< -1: a model of the user's that embeds no tokens
    ParameterRange positions;            ///< empty without learned positions
    std::vector<ParameterRange> layers;  ///< [layer]; empty of a model of the user's
    /// [layer] Of a model of the user's, whose layers may share parameters: ids in the order in
    /// which its operations ask for them.
    std::vector<std::vector<int>> own_layers;
    ParameterRange final_norm;
    int output = 0;  ///< the embedding's when tied; -1: a model of the user's with its own loss
    /// A depth of multi-token prediction.
    struct Depth {
        ParameterRange projection, layer, norm;
    };
    /// They come after all others, so that the others have the initial values of the model without
    /// depths.
    std::vector<Depth> depths;
};

[[nodiscard]] ModelParameters model_parameters(const ModelConfig& config);
[[nodiscard]] inline std::vector<LogicalParameter> logical_parameters(const ModelConfig& config) {
    return model_parameters(config).all;
}

/// [id] What the initial values of each depend on besides the seed: its number, counted without
/// adapters, which come after all others. So a model with adapters begins as the one without.
[[nodiscard]] std::vector<uint64_t> seed_numbers(const std::vector<LogicalParameter>& parameters);

/// Tensor names in the files of the model's family.
[[nodiscard]] const TensorNames& tensor_names(const ModelConfig& config);
/// Before the names of a layer's tensors: "model.layers.3.". The layers of depths come last.
[[nodiscard]] std::string layer_prefix(const ModelConfig& config, int layer);

}  // namespace vocabpipe
