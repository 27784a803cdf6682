// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/mlp.hpp"
#include "src/model/blocks/moe/moe.hpp"

#include <cstdint>
#include <optional>

namespace vocabpipe {

struct FeedForwardOptions {
    int64_t hidden_size = 0;
    MlpOptions mlp;                 ///< without experts
    std::optional<MoeOptions> moe;  ///< with experts
    // With `moe`, at most one shared expert, which computes every token.
    std::optional<MoeOptions> gated_shared_expert;
    std::optional<MlpOptions> shared_expert;
};

/// The part of a layer after attention, (N/t, h) to (N/t, h): an MLP, or a mixture of experts.
class FeedForward {
public:
    using Options = FeedForwardOptions;
    /// What F leaves. Tensors of parts that the layer lacks are empty.
    struct Saved {
        Mlp::Saved mlp;
        Moe::Saved moe;
        Moe::Saved gated_shared_expert;
        Mlp::Saved shared_expert;
    };
    /// What I leaves for W, likewise.
    struct Gradients {
        Mlp::Gradients mlp;
        Moe::Gradients moe;
        Moe::Gradients gated_shared_expert;
        Mlp::Gradients shared_expert;
        Tensor of_shared;  ///< (N/t, h) of x, through the shared expert
    };

    FeedForward(const FeedForwardOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    // These passes work as those of Mlp.

    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                 Tensor out) const;
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    /// The pass that the shared expert sees.
    [[nodiscard]] StagePass pass_of_shared(const StagePass& pass, Bytes workspace) const;

    int64_t hidden_size_;
    // Exactly one of the two.
    std::optional<Mlp> mlp_;
    std::optional<Moe> moe_;
    // With moe_, at most one of the two.
    std::optional<Moe> gated_shared_expert_;
    std::optional<Mlp> shared_expert_;
};

}  // namespace vocabpipe
