// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vocabpipe {

/// What the files of a family call the tensors of a model, without ".weight" and ".bias". The names
/// of a layer's parts follow "<layers><index>.". Empty: the family has no such part.
struct TensorNames {
    std::string embedding, positions, layers, final_norm;
    std::string attention_norm, qkv, proj, post_attention_norm, mlp_norm, fc, fc_proj,
        post_mlp_norm;
    std::string q_norm = {}, k_norm = {};
    std::string output = "lm_head";  ///< of a model whose output weight is not the embedding

    /// Files that keep q, k and v apart: their names. Empty: they keep one tensor `qkv`, with the
    /// rows in that order.
    std::vector<std::string> qkv_parts = {};
    /// Likewise gate and up of `fc`.
    std::vector<std::string> fc_parts = {};
    /// Files keep the linear weights of layers as [in, out] (GPT-2's Conv1D); they are held as
    /// [out, in].
    bool transposed = false;
    /// What all names but the output's begin with. Files of the model without its output layer
    /// leave it out.
    std::string body = {};
};

}  // namespace vocabpipe
