// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/activation.hpp"
#include "vocabpipe/latent_config.hpp"
#include "vocabpipe/layer_forward.hpp"
#include "vocabpipe/lora_config.hpp"
#include "vocabpipe/moe_config.hpp"
#include "vocabpipe/rope.hpp"
#include "vocabpipe/softmax_type.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Largest ModelConfig::mtp_num_layers: more than any model has.
inline constexpr int kMostDepths = 64;

enum class Normalization : uint8_t { layer_norm, rms_norm };

/// A decoder with causal attention. The defaults are GPT-2's.
struct ModelConfig {
    /// One of model_families(), which decides the names in files and config.json. What the model
    /// computes is given by the options below, which set_family() sets.
    std::string family = "gpt2";

    int num_layers = 2;               ///< L, transformer layers
    int64_t hidden_size = 64;         ///< h, columns between layers
    int64_t ffn_hidden_size = 256;    ///< f, columns within the MLP
    int64_t num_attention_heads = 4;  ///< heads of queries
    int64_t num_query_groups = 0;     ///< heads of keys and values; 0: num_attention_heads
    int64_t kv_channels = 0;          ///< size of a head; 0: hidden_size / num_attention_heads
    LatentConfig latent;              ///< latent attention, with sizes of its own; none by default
    int64_t seq_length = 64;          ///< tokens per sequence
    /// With learned positions their rows, which limit seq_length; with rotary ones the trained
    /// length, which does not.
    int64_t max_position_embeddings = 64;
    int64_t vocab_size = 256;  ///< V, without padding
    /// D, depths of multi-token prediction: layers that predict the tokens after the next one
    /// (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    int mtp_num_layers = 0;
    bool tied = true;           ///< input and output layer share their weight
    DType dtype = DType::fp32;  ///< type of weights and activations; sums and moments are fp32

    Normalization normalization = Normalization::layer_norm;  ///< kind of all norms but q's and k's
    float norm_epsilon = 1e-5F;                               ///< what norms add to the variance
    float norm_weight_offset = 0;                             ///< 1: files keep gamma - 1 (Gemma)
    bool pre_norms = true;          ///< norms before attention and the MLP
    bool post_norms = false;        ///< norms of what is added to the residual (Gemma 2)
    bool qk_norm = false;           ///< RMSNorm of q and k
    bool qk_norm_by_head = true;    ///< per head (Qwen 3), else over all heads together (OLMo 2)
    bool learned_positions = true;  ///< learned positions, else rotary ones
    Rope rope;                      ///< rotary positions, where layers have them
    std::vector<bool> roped;        ///< [layer] whether it has rotary positions; empty: all have
    /// d of the rotary angles: the first columns of a head, which are rotated; 0: all. With an odd
    /// d one more column is rotated, as in transformers.
    int64_t rotary_channels = 0;
    bool parallel_residual = false;  ///< the MLP reads what attention reads; no post_norms
    bool gated = false;              ///< activation(gate) * up instead of activation(up)
    kernels::Activation activation = kernels::Activation::gelu_tanh;  ///< activation of the MLP
    bool qkv_bias = true;                                             ///< bias of q, k and v
    bool attention_output_bias = true;                ///< bias of the projection after attention
    bool mlp_bias = true;                             ///< bias of both products of the MLP
    float attention_scale = 0;                        ///< factor of scores; 0: 1 / sqrt(head size)
    float attention_softcap = 0;                      ///< soft cap of scores; 0: none
    SoftmaxType softmax_type = SoftmaxType::vanilla;  ///< learnable: attention sinks
    float logit_softcap = 0;                          ///< soft cap of logits; 0: none
    float embedding_scale = 1;   ///< factor of embedded tokens; sqrt(h) in Gemma
    int64_t sliding_window = 0;  ///< tokens that a layer with a window sees
    std::vector<bool> windowed;  ///< [layer] whether it has the window; empty: none has
    /// Rotary positions of layers with the window; none: `rope`, as in all other layers.
    std::optional<Rope> windowed_rope;

    /// Layers of your own (layer_graph.hpp); empty: those that the options above describe.
    /// Embedding, final norm and output layer stay the model's. Saved steps have the tensors of
    /// such layers, and only programs that set the same layers load them.
    LayerForward layer_forward;
    /// A whole model of your own (model_graph.hpp), in place of all that; empty: none. Set it and
    /// the two below with model_of().
    ModelForward model_forward;
    bool embeds_tokens = true;     ///< false: such a model reads columns of the data alone
    bool has_output_layer = true;  ///< false: such a model has a loss of its own
    /// Whether layers, or all of the model, are functions of the caller.
    [[nodiscard]] bool has_own_layers() const { return layer_forward || model_forward; }

    MoeConfig moe;    ///< experts in place of the MLP; none by default
    LoraConfig lora;  ///< adapters of linear layers; none by default

    /// Token that begins a text, where known: read from a model's files, for generation.
    std::optional<int32_t> begin_of_text;
    std::vector<int32_t> ends_of_text;  ///< tokens that end a text, likewise

    float init_std = 0.02F;     ///< standard deviation of the initial weights
    float label_smoothing = 0;  ///< share of the loss spread evenly over all rows; 0: none
    float z_loss = 0;           ///< coefficient of (log Z)^2 in the loss; 0: none
    /// lambda: what the mean loss of the depths of multi-token prediction counts in the loss;
    /// Megatron's default.
    float mtp_loss_scaling_factor = 0.1F;

    /// Whether attention is latent attention.
    [[nodiscard]] bool has_latents() const { return latent.kv_rank > 0; }
    /// d, columns of one head of q and k.
    [[nodiscard]] int64_t head_size() const {
        if (has_latents()) return latent.key_size + latent.rope_size;
        return kv_channels > 0 ? kv_channels : hidden_size / num_attention_heads;
    }
    /// Columns of one head of v.
    [[nodiscard]] int64_t value_size() const {
        return has_latents() ? latent.value_size : head_size();
    }
    /// d of the rotary angles, by which their exponents are divided.
    [[nodiscard]] int64_t rotary_dimension() const {
        if (has_latents()) return latent.rope_size;
        return rotary_channels > 0 ? rotary_channels : head_size();
    }
    /// 1 + D, rows of the output layer for each token: of the next token, and of each depth.
    [[nodiscard]] int predicted_tokens() const { return 1 + mtp_num_layers; }
    /// lambda / D: what the loss of one depth counts in the loss; 0 without depths.
    [[nodiscard]] float mtp_loss_weight() const {
        return mtp_num_layers == 0 ? 0
                                   : mtp_loss_scaling_factor / static_cast<float>(mtp_num_layers);
    }
    /// Columns of one head that rotary positions rotate, in pairs.
    [[nodiscard]] int64_t rotary_size() const {
        return rotary_dimension() + rotary_dimension() % 2;
    }
    /// Heads of keys and values.
    [[nodiscard]] int64_t kv_heads() const {
        return num_query_groups > 0 ? num_query_groups : num_attention_heads;
    }
    /// Columns of q.
    [[nodiscard]] int64_t query_columns() const { return num_attention_heads * head_size(); }
    /// Columns of q, k and v side by side.
    [[nodiscard]] int64_t qkv_columns() const { return query_columns() + key_value_columns(); }
    /// Columns of k and v side by side.
    [[nodiscard]] int64_t key_value_columns() const {
        return kv_heads() * (head_size() + value_size());
    }
    /// Columns of the first product of the MLP: gate and up side by side, or up.
    [[nodiscard]] int64_t mlp_columns() const { return (gated ? 2 : 1) * ffn_hidden_size; }
    /// Feed-forward size of one expert.
    [[nodiscard]] int64_t expert_ffn_hidden_size() const {
        return moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : ffn_hidden_size;
    }
    /// Feed-forward size of the expert that all tokens share.
    [[nodiscard]] int64_t shared_ffn_hidden_size() const {
        if (moe.shared_ffn_hidden_size > 0) return moe.shared_ffn_hidden_size;
        return moe.shared_gate ? ffn_hidden_size : expert_ffn_hidden_size();
    }
    /// Whether q and k of the layer have rotary positions.
    [[nodiscard]] bool has_rope(int layer) const {
        return !learned_positions && (roped.empty() || roped[static_cast<size_t>(layer)]);
    }
    /// Tokens that the layer sees; 0: all before.
    [[nodiscard]] int64_t window(int layer) const {
        return !windowed.empty() && windowed[static_cast<size_t>(layer)] ? sliding_window : 0;
    }
    /// Throws UsageError naming flag, value and limit.
    void check() const;
};

/// Throws UsageError for sequences longer than the learned positions. Rotary positions have no
/// limit.
void check_positions(const ModelConfig& model, int64_t seq_length);

/// Names of all families, as in model_type of config.json.
[[nodiscard]] std::vector<std::string> model_families();

/// Sets what all models of the family have in common: everything but sizes, type, losses and seeds.
/// Call after setting the sizes, because Gemma's scales follow from them. Throws UsageError for an
/// unknown name, with the nearest known one.
void set_family(ModelConfig& config, std::string_view family);

}  // namespace vocabpipe
