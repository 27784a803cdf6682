// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/sublayer.hpp"

#include <cstdint>

namespace vocabpipe {

struct DecoderLayerOptions {
    SublayerOptions<AnyAttention::Options> attention;
    SublayerOptions<FeedForwardOptions> mlp;
    bool parallel = false;  ///< without post norms
};

/// Attention, then an MLP or experts, each added to the residual stream:
///     middle = x + attention(x),  out = middle + mlp(middle),
/// or in parallel (GPT-NeoX) out = x + attention(x) + mlp(x), with the norms of Sublayer.
/// Saved per layer, its input included, in elements of the run's type per token: 2 h (h if
/// parallel); 2 h with norms before the blocks, 2 h with norms after them; of Attention q k v
/// (twice with norms of q and k) and the heads' output, the MLP's two or three f, so 16 h for
/// GPT-2's f = 4 h; plus fp32 row statistics. No tensor of shape [s, s] is saved.
class DecoderLayer {
public:
    /// What F leaves, besides the layer's input.
    struct Saved {
        Sublayer<AnyAttention>::Saved attention;
        Tensor middle;  ///< (N/t, h), not in parallel
        Sublayer<FeedForward>::Saved mlp;
    };
    /// What I leaves for W, besides the gradient of the layer's output.
    struct Gradients {
        Sublayer<AnyAttention>::Gradients attention;
        Tensor middle;  ///< (N/t, h), not in parallel
        Sublayer<FeedForward>::Gradients mlp;
    };

    DecoderLayer(const DecoderLayerOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    /// x, out (N/t, h). An empty `out` is not computed.
    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, Tensor out) const;
    /// Recomputes the cheap tensors of `saved`.
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    /// dy, dx (N/t, h): gradients of `out` and of x.
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    [[nodiscard]] ConstTensor mlp_input(ConstTensor x, const Saved& saved) const {
        return parallel_ ? x : ConstTensor(saved.middle);
    }
    /// dy: gradient of `out`.
    [[nodiscard]] ConstTensor attention_gradient(ConstTensor dy, const Gradients& gradients) const {
        return parallel_ ? dy : ConstTensor(gradients.middle);
    }

    int64_t hidden_size_;
    bool parallel_;
    Sublayer<AnyAttention> attention_;
    Sublayer<FeedForward> mlp_;
};

}  // namespace vocabpipe
