// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// A tensor of Hugging Face's files that is a part of a logical parameter.
struct FilePart {
    std::string name;
    int64_t count = 0;  ///< rows of a matrix, elements of a vector
};

/// One logical tensor of the model, whatever ranks hold it. Its index is its id: it seeds the
/// initialisation and orders the gradient norm, so neither depends on p.
struct LogicalParameter {
    std::string name;
    int64_t rows = 0;
    int64_t cols = 0;
    float init_std = 0;  ///< 0: constant
    float init_constant = 0;
    bool weight_decay = false;
    /// Files keep [in, out] (GPT-2's Conv1D); linear weights are held as [out, in].
    bool transposed_in_files = false;
    /// What files split it into, one after the other: q, k, v; gate, up. Empty: nothing, the name
    /// is the file's.
    std::vector<FilePart> parts;
};

inline constexpr int kNoParameter = -1;

/// Ids of a weight and its bias.
struct WeightAndBias {
    int weight = kNoParameter;
    int bias = kNoParameter;
};

/// Ids of one layer; kNoParameter where the model has none.
struct LayerParameters {
    WeightAndBias attention_norm;
    WeightAndBias qkv;  ///< rows q | k | v
    int q_norm = kNoParameter;
    int k_norm = kNoParameter;
    WeightAndBias proj;
    WeightAndBias post_attention_norm;
    WeightAndBias mlp_norm;
    WeightAndBias fc;  ///< rows gate | up, or up
    WeightAndBias fc_proj;
    WeightAndBias post_mlp_norm;
};

/// All logical parameters of a model and what they are.
struct ModelParameters {
    std::vector<LogicalParameter> all;  ///< [id]
    int embedding = kNoParameter;
    int positions = kNoParameter;
    std::vector<LayerParameters> layers;
    WeightAndBias final_norm;
    int output = kNoParameter;  ///< the embedding's when tied
};

[[nodiscard]] ModelParameters model_parameters(const ModelConfig& config);
[[nodiscard]] inline std::vector<LogicalParameter> logical_parameters(const ModelConfig& config) {
    return model_parameters(config).all;
}

}  // namespace vocabpipe
