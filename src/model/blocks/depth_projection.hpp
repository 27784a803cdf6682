// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/linear.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>

namespace vocabpipe {

struct DepthProjectionOptions {
    NormOptions embedded_norm;  ///< of the embedded token that the depth sees besides
    NormOptions hidden_norm;    ///< of what the depth before it has made
    LinearOptions projection;   ///< from 2 h columns to h
    int64_t hidden_size = 0;    ///< h
};

/// The input of a depth of multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2):
///     out_i = M [norm(embedded_{i+k}); norm(hidden_i)],
/// with the embedded token in the first columns, as the published weights of DeepSeek-V3 have it.
/// Saved per token, in elements of the run's type: 4 h, and fp32 row statistics.
class DepthProjection {
public:
    /// What F leaves.
    struct Saved {
        Tensor embedded;  ///< (N, h): of token i + k in row i, to be filled by the caller
        Tensor hidden;    ///< (N, h): to be filled by the caller
        Tensor normed;    ///< (N, 2 h)
        Statistics embedded_statistics;
        Statistics hidden_statistics;
    };

    DepthProjection(const DepthProjectionOptions& options, ParameterSource& parameters);

    /// `kept`: of what nothing recomputes; the norms are cheap (SavedViews).
    [[nodiscard]] Saved saved_views(TokenViews& kept, TokenViews& cheap) const;
    /// (N, 2 h): what I leaves for W, besides the gradient of `out`.
    [[nodiscard]] Tensor gradient_view(TokenViews& views) const;

    /// The norms' part of forward().
    void normalize(const StagePass& pass, const Saved& saved) const;
    /// out (N, h).
    void forward(const StagePass& pass, const Saved& saved, Tensor out) const;
    /// dy: gradient of `out`; gradient: of gradient_view(). Makes d_embedded and d_hidden (N, h);
    /// d_hidden is added to `residual` (N, h), which it may alias.
    void backward_input(const StagePass& pass, ConstTensor dy, const Saved& saved, Tensor gradient,
                        Tensor d_embedded, ConstTensor residual, Tensor d_hidden) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, const Saved& saved,
                         ConstTensor gradient) const;

    /// Both norms, and the product.
    [[nodiscard]] BlockWork work() const;

private:
    [[nodiscard]] Tensor embedded_columns(Tensor both) const {
        return both.column_range(0, hidden_size_);
    }
    [[nodiscard]] Tensor hidden_columns(Tensor both) const {
        return both.column_range(hidden_size_, hidden_size_);
    }

    int64_t hidden_size_;
    Norm embedded_norm_;
    Norm hidden_norm_;
    Linear projection_;
};

}  // namespace vocabpipe
