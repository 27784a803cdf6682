// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/linear.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/rope.hpp"

#include <cstdint>
#include <optional>

namespace vocabpipe {

struct LatentAttentionOptions {
    LinearFiles down;   ///< product of x: q or its latent | latent of k and v | rotary key
    LinearFiles q_up;   ///< with q_rank; a head's columns with positions come first
    LinearFiles kv_up;  ///< keys of all heads, then values of all heads
    LinearFiles proj;
    NormOptions q_norm;  ///< with q_rank; its size follows from the rank, as that of kv_norm
    NormOptions kv_norm;
    int64_t hidden_size = 0;
    int64_t heads = 0;       ///< a
    int64_t q_rank = 0;      ///< columns of q's latent; 0: q is a product of x
    int64_t kv_rank = 0;     ///< columns of the latent of k and v
    int64_t key_size = 0;    ///< columns of a head of q and k without positions
    int64_t rope_size = 0;   ///< columns with rotary positions, of a head of q, and of the one key
    int64_t value_size = 0;  ///< columns of a head of v
    float scale = 0;         ///< of scores; 0: 1 / sqrt(key_size + rope_size)
    Rope rope;
    float init_std = 0;
    float proj_init_std = 0;
    LoraConfig lora = {};  ///< adapters of all products
    int context = 1;       ///< C, ranks that share the sequences: 1
    int tensor = 1;        ///< t, ranks that share the heads: 1
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), (N, h) to (N, h): x is
/// projected down to a latent of k and v, to a key with rotary positions that all heads share, and
/// to q, or its latent; norms of the latents, and products up to the heads. A head of q, and of k,
/// is its rope_size columns with positions, then its key_size ones without; files have them the
/// other way round. A pass copies keys head by head, so it runs 2 a small operators besides. One
/// rank has all heads and whole sequences.
class LatentAttention {
public:
    using Options = LatentAttentionOptions;
    /// What F leaves. A selective R computes all but `down` and the result of the heads again, the
    /// products up included (DeepSeek-V3, arXiv 2412.19437, section 3.2.3).
    struct Saved {
        Tensor down;      ///< (N, columns of the product down)
        Tensor q_latent;  ///< (N, q_rank) after its norm; empty without q_rank
        Statistics q_statistics;
        Tensor kv_latent;  ///< (N, kv_rank) after its norm
        Statistics kv_statistics;
        Tensor qkv;              ///< (N, qkv_columns) input of the heads
        Statistics log_sum_exp;  ///< (N, heads)
        Tensor heads;            ///< (N, output_columns) their output
    };
    /// What I leaves for W: gradients of tensors of Saved, and of the product up to k and v.
    struct Gradients {
        Tensor qkv;
        Tensor kv_up;  ///< (N, a (key_size + value_size))
        Tensor kv_latent;
        Tensor q_latent;
        Tensor down;
    };

    /// Throws UsageError if ranks share the layer.
    LatentAttention(const LatentAttentionOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    // These passes work as those of Attention; generation keeps the keys and values of all heads.

    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out) const;
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    /// Columns of `down` that are q, or its latent.
    [[nodiscard]] int64_t q_columns() const;
    [[nodiscard]] int64_t up_columns() const {
        return options_.heads * (options_.key_size + options_.value_size);
    }
    /// Computes qkv from `down`.
    void expand(const StagePass& pass, const Saved& saved) const;
    /// The gradient of k and v from that of the heads' input, and the rotary key's into `down`.
    void collect_keys(const StagePass& pass, const Gradients& gradients) const;

    LatentAttentionOptions options_;
    kernels::AttentionShape shape_;
    Linear down_;
    std::optional<Norm> q_norm_;
    std::optional<Linear> q_up_;
    Norm kv_norm_;
    Linear kv_up_;
    Linear proj_;
};

}  // namespace vocabpipe
