// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recompute.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

struct ModelConfig;

/// The experts of layers with a mixture of experts, which replace the MLP: gated MLPs.
struct ExpertsShape {
    int64_t experts = 0;                 ///< E; 0: no layer has experts
    int64_t per_token = 0;               ///< k
    int64_t ffn_hidden_size = 0;         ///< of one expert
    int64_t shared_ffn_hidden_size = 0;  ///< of the expert that computes all tokens; 0: none
    bool shared_gate = false;            ///< its output is scaled by a product of the token
    bool correction_bias = false;        ///< one number per expert
    int layers = 0;                      ///< number of layers with experts
};

/// The sizes of a decoder that time and memory depend on. Letters as in docs/planning.md: L layers,
/// h hidden, a heads, g key/value heads, d head size, f feed-forward size, V vocabulary.
struct TransformerShape {
    std::string name;                 ///< as in load_model(), or of the file
    int num_layers = 0;               ///< L
    int64_t hidden_size = 0;          ///< h
    int64_t ffn_hidden_size = 0;      ///< f
    int64_t num_attention_heads = 0;  ///< a
    int64_t num_key_value_heads = 0;  ///< g: a for multi-head attention, fewer for grouped queries
    int64_t head_size = 0;            ///< d, not always h / a
    int64_t vocab_size = 0;           ///< V, unpadded
    int64_t learned_positions = 0;    ///< rows of a learned position table; 0: rotary positions
    bool gated_mlp = false;           ///< SwiGLU, GeGLU: three matrices of h x f instead of two
    bool layer_norm = false;  ///< LayerNorm (weight and bias); otherwise RMSNorm (weight alone)
    int norms_per_layer = 2;  ///< 4 where sublayer outputs are normalised too (Gemma 2)
    bool pre_norms = true;    ///< two of them normalise sublayer inputs, else none (OLMo 2)
    bool qk_norms = false;    ///< RMSNorm of q and k
    bool qk_norms_by_head = true;  ///< per head (Qwen 3), else over all heads together (OLMo 2)
    bool qkv_bias = false;         ///< bias of q, k and v (GPT, Qwen 2)
    bool attention_output_bias = false;  ///< bias of the projection after attention (GPT)
    bool mlp_bias = false;               ///< bias of both products of the MLP (GPT)
    bool tied = false;                   ///< input embedding and output layer share their weight
    int64_t sliding_window = 0;      ///< tokens that layers with a window attend to; 0: all before
    int windowed_layers = 0;         ///< number of layers with the window
    int layers_without_rope = 0;     ///< number of layers without positions (SmolLM3)
    int64_t rotary_size = 0;         ///< columns of a head that positions rotate; 0: all
    bool parallel_residual = false;  ///< the MLP reads what attention reads (GPT-NeoX)
    ExpertsShape moe = {};  ///< in some or all layers; the functions below return means over layers

    /// Throws UsageError naming the size that is missing or impossible.
    void check() const;

    /// Parameters of a layer, by how ranks share them.
    struct LayerParameters {
        double cut = 0;       ///< split over tensor ranks
        double repeated = 0;  ///< whole on every rank
        double experts = 0;   ///< split over expert ranks, not over tensor ranks
    };
    /// Mean over the transformer layers.
    [[nodiscard]] LayerParameters layer_parameters() const;
    /// Parameters of the whole model; a tied weight counts once.
    [[nodiscard]] int64_t parameters() const;
    /// Parameters that compute one token: of the experts only k per layer.
    [[nodiscard]] int64_t active_parameters() const;

    /// How ranks share a matrix.
    enum class Cut : uint8_t {
        columns,   ///< tensor ranks compute columns of its result: column-parallel
        rows,      ///< tensor ranks sum over a part of its inputs: row-parallel
        repeated,  ///< whole on every rank, for its own tokens
        experts,   ///< expert ranks have some of the `count` matrices
    };
    /// The weight of a linear layer, [out, in].
    struct Matrix {
        int64_t in = 0;           ///< elements read per token
        int64_t out = 0;          ///< elements made per token
        int64_t count = 1;        ///< number of equal matrices: experts
        double rows = 1;          ///< fraction of a microbatch's tokens that each reads
        double of_layers = 1;     ///< fraction of the layers that have it
        Cut cut = Cut::repeated;  ///< how ranks share it
    };
    /// The matrices of one layer: q, k and v together; attention's output; the first of the
    /// feed-forward part, for a gated one gate and up together; the second. With experts instead
    /// the router, the first and the second of the experts, then those of the shared expert.
    [[nodiscard]] std::vector<Matrix> matrices() const;
    /// Forward FLOPs per token of one layer's linear layers: 2 per weight, counting only the k
    /// experts of a token.
    [[nodiscard]] double dense_flops() const;
    /// Forward FLOPs per token of one layer's attention at sequence length s, causal (half of the
    /// square), mean over layers with and without a window.
    [[nodiscard]] double attention_flops(int64_t seq_length) const;
    /// Forward FLOPs per token of the model, 2 h V of them in the output layer; the embedding
    /// counts 0. MFU counts 3 times this (forward and backward) and nothing else.
    [[nodiscard]] double forward_flops(int64_t seq_length) const;

    /// Elements per token that one layer's norms, residual additions, rotary positions and
    /// activation read and write, each operator by itself.
    [[nodiscard]] double elementwise_forward() const;
    /// The same for the backward.
    [[nodiscard]] double elementwise_backward() const;

    /// Bytes per token that one layer keeps from F to the end of its backward, in elements of the
    /// run's type and fp32 row statistics: inputs of all linear layers, norms and the activation,
    /// and what attention needs; nothing of shape [s, s] (docs/memory.md). `expert_rows`: rows of
    /// experts that there is memory for, as a multiple of the rows if all experts have equally
    /// many. Of t tensor ranks each keeps 1/t.
    [[nodiscard]] int64_t saved_bytes(int64_t element_bytes = 2, double expert_rows = 1) const;
    /// The part of saved_bytes() that R makes again.
    [[nodiscard]] int64_t recomputed_bytes(Recompute recompute, int64_t element_bytes = 2,
                                           double expert_rows = 1) const;
    /// Elements per token that one layer's selective R reads and writes.
    [[nodiscard]] double elementwise_recompute() const;
    /// Bytes per token that I keeps for W: the gradients of all linear layers' outputs.
    [[nodiscard]] int64_t for_weight_bytes(int64_t element_bytes = 2, double expert_rows = 1) const;
    /// Elements per token of the largest temporary tensor of a pass.
    [[nodiscard]] int64_t scratch_columns(double expert_rows = 1) const;
};

/// The shape of a model, without a name.
[[nodiscard]] TransformerShape shape_of(const ModelConfig& config);

/// Names of the built-in models.
[[nodiscard]] std::string known_models();

/// The shape of a built-in model, or of a Hugging Face config.json of one of model_families().
/// Throws UsageError for a name that is neither built in nor a file, with the nearest known one;
/// InputFileError naming file, key, value and limit.
[[nodiscard]] TransformerShape load_model(const std::string& name_or_path);

}  // namespace vocabpipe
