// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/cut_linear.hpp"
#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/qk_norm.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/rope.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

struct AttentionOptions {
    LinearFiles qkv, proj;
    int64_t hidden_size = 0;
    kernels::AttentionShape shape;  ///< passes set sequences and seq_length
    bool qkv_bias = false;
    bool proj_bias = false;
    float qkv_init_std = 0;
    float proj_init_std = 0;
    LoraConfig lora = {};                  ///< adapters of both products
    std::optional<QkNormOptions> qk_norm;  ///< before the rotary positions
    std::string sinks;                     ///< name of the sinks' tensor; empty: no sinks
    float sinks_init_std = 0;
    std::optional<Rope> rope;       ///< none: no rotary positions
    int64_t rotary_size = 0;        ///< columns of a head that `rope` rotates
    int context = 1;                ///< C, ranks that share the sequences
    ContextExchange exchange = {};  ///< between them
    int tensor = 1;                 ///< t, ranks that share the heads
};

/// Causal self-attention with its projections, (N/t, h) to (N/t, h): q | k | v of x, then norms and
/// rotary positions of q and k where the model has them, then the heads, then `proj`. Between the
/// products a rank has all N tokens and its share of the heads; `heads` and `columns` below count
/// that share.
class Attention {
public:
    using Options = AttentionOptions;
    /// What F leaves. Tensors that a model lacks are empty.
    struct Saved {
        QkNorm::Saved qk_norm;
        Tensor qkv;              ///< (N, qkv_columns) input of the heads
        Statistics log_sum_exp;  ///< (N, heads)
        Tensor heads;            ///< (N, output_columns) their output
    };
    /// What I leaves for W.
    struct Gradients {
        Tensor qkv;        ///< (N, qkv_columns) of the product's result
        Tensor normed;     ///< (N, qkv_columns) after the norms of q and k, where there are any
        Statistics sinks;  ///< (N, heads) of the sinks in every query, where there are any
    };

    Attention(const AttentionOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    /// out = residual + attention(x), without residual if that is empty. An empty `out` is not
    /// computed.
    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out) const;
    /// Recomputes the cheap tensors of `saved` from the costly ones.
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    /// dy: gradient of attention(x); dx: of x.
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    [[nodiscard]] kernels::AttentionShape shape(const StagePass& pass) const {
        return shape_in_pass(shape_, pass);
    }
    /// Applies norms and positions to q and k: from the product to the input of the heads.
    void finish_qkv(const StagePass& pass, const Saved& saved) const;
    /// Computes the heads' output from their input.
    void attend(const StagePass& pass, const Saved& saved) const;
    /// The gradient of the heads' input, and of the sinks, from that of their output.
    void attend_backward(const StagePass& pass, ConstTensor dheads, const Saved& saved,
                         Statistics dsinks, Tensor dqkv) const;
    /// The gradient of the sinks from that in every query.
    void sum_sinks(const StagePass& pass, Statistics gradients) const;
    [[nodiscard]] bool has_sinks() const { return !options_.sinks.empty(); }
    [[nodiscard]] HeadSinks sinks(Statistics gradients = {}) const {
        if (!has_sinks()) return {};
        // Frozen ones need none.
        return {.scores = sinks_->weight, .gradients = sinks_->gradient ? gradients : Statistics()};
    }
    /// Calls use() with the exchange of context ranks, GatheredKeys or ExchangedHeads.
    template <typename Use>
    auto with_exchange(const kernels::AttentionShape& shape, const Use& use) const;

    AttentionOptions options_;
    kernels::AttentionShape shape_;  ///< of this rank's heads
    ColumnLinear qkv_;
    std::optional<QkNorm> qk_norm_;
    Parameter* sinks_;  ///< (1, heads), null if there are none
    RowLinear proj_;
};

}  // namespace vocabpipe
