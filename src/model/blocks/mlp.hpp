// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/cut_linear.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "vocabpipe/activation.hpp"

#include <cstdint>

namespace vocabpipe {

struct MlpOptions {
    LinearFiles fc, fc_proj;
    int64_t hidden_size = 0;      ///< h
    int64_t ffn_hidden_size = 0;  ///< f
    bool gated = false;           ///< activation(gate) * up instead of activation(up)
    kernels::Activation activation = kernels::Activation::gelu_tanh;
    bool bias = false;  ///< of both products
    float fc_init_std = 0;
    float proj_init_std = 0;
    LoraConfig lora = {};  ///< adapters of both products
    int tensor = 1;        ///< t, ranks that share f
};

/// The feed-forward part of a layer, (N/t, h) to (N/t, h). Between the products a rank has all N
/// tokens and its share of f: f below is the model's f / t.
class Mlp {
public:
    using Options = MlpOptions;
    /// What F leaves.
    struct Saved {
        Tensor fc;   ///< (N, 2 f) gate | up, or (N, f) up: before the activation
        Tensor act;  ///< (N, f)
    };
    /// What I leaves for W.
    struct Gradients {
        Tensor fc;  ///< as Saved::fc
    };

    Mlp(const MlpOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    /// out = residual + mlp(x), without residual if that is empty. An empty `out` is not computed.
    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out) const;
    /// Recomputes the cheap tensors of `saved` from the costly ones.
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    /// dy: gradient of mlp(x); dx: of x.
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    /// f of this rank.
    [[nodiscard]] int64_t ffn_columns() const { return options_.ffn_hidden_size / options_.tensor; }
    [[nodiscard]] int64_t fc_columns() const { return (options_.gated ? 2 : 1) * ffn_columns(); }
    /// Whether the products also compute the activation.
    [[nodiscard]] bool fused() const {
        return !options_.gated && options_.activation == kernels::Activation::gelu_tanh;
    }
    void activate(const StagePass& pass, ConstTensor fc, Tensor act) const;

    MlpOptions options_;
    ColumnLinear fc_;
    RowLinear fc_proj_;
};

}  // namespace vocabpipe
