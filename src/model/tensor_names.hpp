// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vocabpipe {

/// Tensor names in the files of a family, without ".weight" and ".bias". Empty where the family has
/// no such tensor.
struct TensorNames {
    std::string embedding;   ///< of tokens
    std::string positions;   ///< learned ones
    std::string layers;      ///< before the number of a layer: "model.layers."
    std::string final_norm;  ///< after the last layer

    // Within a layer, after "<layers><number>.".

    std::string attention_norm;       ///< of attention's input
    std::string qkv;                  ///< q | k | v
    std::string proj;                 ///< from the heads back into the residual stream
    std::string post_attention_norm;  ///< of attention's output
    std::string mlp_norm;             ///< of the MLP's input
    std::string fc;                   ///< gate | up, or up
    std::string fc_proj;              ///< back into the residual stream
    std::string post_mlp_norm;        ///< of the MLP's output
    std::string q_norm = {};          ///< of q
    std::string k_norm = {};          ///< of k
    /// Whole name of the sinks of attention, one for each head (SoftmaxType::learnable).
    std::string sinks = {};
    /// Names in files that keep q, k and v apart. Empty: files keep one tensor `qkv`, with the rows
    /// in that order.
    std::vector<std::string> qkv_parts = {};
    /// Likewise gate and up of `fc`.
    std::vector<std::string> fc_parts = {};
    /// Latent attention: q, or its latent with its norm and the product up from it; the latent of k
    /// and v with the rotary key, its norm, and the product up to k and v.
    std::string q = {}, q_down = {}, q_down_norm = {}, q_up = {};
    std::string kv_down = {}, kv_down_norm = {}, kv_up = {};
    std::string qkv_down = {};  ///< q or q_down | kv_down
    std::string router = {};    ///< of layers with experts
    /// Whole name of the bias that is added to scores before the router chooses.
    std::string correction_bias = {};
    std::string experts = {};        ///< before the number of an expert: "mlp.experts."
    std::string shared_gate = {};    ///< scales the output of the expert for all tokens
    std::string shared_expert = {};  ///< before its gate, up and down: "mlp.shared_expert."
    /// Names within one expert, after its number and a dot: gate, up, and back into the residual
    /// stream.
    std::string expert_gate = {}, expert_up = {}, expert_down = {};
    /// transformers 5 may keep all experts of a layer together: "gate_up_proj", [experts, 2 f, h],
    /// and "down_proj", [experts, h, f], without ".weight". This is the prefix of both:
    /// "mlp.experts.".
    std::string stacked_experts = {};
    std::string stacked_router = {};  ///< the router of such files; empty: as `router`
    /// The rows of `qkv` are q, k and v of the first head, then of the second.
    bool qkv_by_head = false;

    /// Files keep the linear weights of layers as [in, out] (GPT-2's Conv1D); they are held as
    /// [out, in].
    bool transposed = false;
    /// The prefix of all names but the output's. Files of the model without its output layer leave
    /// it out.
    std::string body = {};
    std::string output = "lm_head";  ///< of a model whose output weight is not the embedding
    /// The output's name in transformers 5, where its files may have another; empty: the same.
    std::string newer_output = {};
};

}  // namespace vocabpipe
