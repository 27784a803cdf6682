// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe {

/// What the files of a family call the tensors of a model, without ".weight" and ".bias". Empty
/// where the family has no such tensor.
struct TensorNames {
    std::string embedding;   ///< of tokens
    std::string positions;   ///< learned ones
    std::string layers;      ///< before the number of a layer: "model.layers."
    std::string final_norm;  ///< after the last layer

    // Within a layer, after "<layers><number>.".

    std::string attention_norm;       ///< what attention reads
    std::string qkv;                  ///< q | k | v; files may split it
    std::string proj;                 ///< from the heads back into the residual stream
    std::string post_attention_norm;  ///< of what attention adds to the residual stream
    std::string mlp_norm;             ///< what the MLP reads
    std::string fc;                   ///< gate | up, or up; files may split it
    std::string fc_proj;              ///< back into the residual stream
    std::string post_mlp_norm;        ///< of what the MLP adds to the residual stream
};

}  // namespace vocabpipe
