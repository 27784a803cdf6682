// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

struct NormOptions {
    std::string name;  ///< without ".weight" and ".bias"
    Normalization kind = Normalization::rms_norm;
    int64_t size = 0;         ///< h
    float epsilon = 0;        ///< added to the variance, or to the mean square
    float weight_offset = 0;  ///< of RMSNorm; 1: files keep gamma - 1 (Gemma)
};

/// LayerNorm or RMSNorm of every row, y = residual + norm(x).  x, y (N/t, h).
class Norm {
public:
    Norm(const NormOptions& options, ParameterSource& parameters);

    /// Numbers per row that the backward reads besides x.
    [[nodiscard]] static int64_t statistics(Normalization kind) {
        return kind == Normalization::layer_norm ? 2 : 1;
    }
    /// Memory for them.
    [[nodiscard]] Statistics statistics_view(TokenViews& views) const;

    /// residual (N/t, h) or empty; y does not alias it.
    void forward(const StagePass& pass, ConstTensor x, ConstTensor residual, Tensor y,
                 Statistics statistics) const;
    /// dx = residual + the gradient of x; residual (N/t, h) or empty may alias dx. A whole backward
    /// also makes the gradients of the parameters.
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, Statistics statistics,
                        ConstTensor residual, Tensor dx) const;
    /// Does nothing in a whole backward.
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                         Statistics statistics) const;

    /// A forward reads x and writes y; a backward reads x and dy and writes dx.
    [[nodiscard]] MovedElements moved() const {
        return {.forward = 2 * options_.size, .backward = 3 * options_.size};
    }

private:
    [[nodiscard]] kernels::RmsNormOptions rms_norm() const {
        return {.epsilon = options_.epsilon, .weight_offset = options_.weight_offset};
    }

    NormOptions options_;
    Parameter* weight_;
    Parameter* bias_;  ///< null: RMSNorm has none
};

}  // namespace vocabpipe
