// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/any_attention.hpp"
#include "src/model/blocks/block.hpp"
#include "src/model/blocks/feed_forward.hpp"
#include "src/model/blocks/mlp.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"

#include <cstdint>
#include <optional>

namespace vocabpipe {

template <class BlockOptions>
struct SublayerOptions {
    std::optional<NormOptions> norm;  ///< of the block's input
    BlockOptions block;
    std::optional<NormOptions> post_norm;  ///< of what is added to the residual stream
};

/// A block in the residual stream:
///     out = residual + post_norm(block(norm(x))),
/// with either norm optional. `residual` is x where sublayers follow each other.
template <Block Inner>
class Sublayer {
public:
    /// What F leaves. Tensors of absent norms are empty.
    struct Saved {
        Tensor norm;  ///< (N/t, h)
        Statistics norm_statistics;
        typename Inner::Saved block;
        Tensor out;  ///< (N/t, h) of the block, where a post norm reads it
        Statistics post_statistics;
    };
    /// What I leaves for W.
    struct Gradients {
        Tensor in;  ///< (N/t, h) of the block's input
        typename Inner::Gradients block;
        Tensor out;  ///< (N/t, h) of Saved::out
    };

    Sublayer(const SublayerOptions<typename Inner::Options>& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    /// x, residual, out (N/t, h). An empty `out` is not computed: no backward needs it. Without a
    /// post norm residual may alias out.
    void forward(const StagePass& pass, ConstTensor x, ConstTensor residual, const Saved& saved,
                 Tensor out) const;
    /// Recomputes the cheap tensors of `saved`.
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    /// dx (N/t, h) = residual + the gradient of x; dy: gradient of `out`; residual: gradient that
    /// reaches x around the block.
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, ConstTensor residual, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    /// Input of the block: x, or its norm.
    [[nodiscard]] ConstTensor block_input(ConstTensor x, const Saved& saved) const {
        return norm_ ? ConstTensor(saved.norm) : x;
    }
    /// Gradient of the block's output.
    [[nodiscard]] ConstTensor block_gradient(ConstTensor dy, const Gradients& gradients) const {
        return post_norm_ ? ConstTensor(gradients.out) : dy;
    }

    int64_t hidden_size_;
    std::optional<Norm> norm_;
    Inner block_;
    std::optional<Norm> post_norm_;
};

extern template class Sublayer<AnyAttention>;
extern template class Sublayer<Mlp>;
extern template class Sublayer<FeedForward>;

}  // namespace vocabpipe
