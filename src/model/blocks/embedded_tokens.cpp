// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/embedded_tokens.hpp"

namespace vocabpipe {

EmbeddedTokens::EmbeddedTokens(const EmbeddedTokensOptions& options, ParameterSource& parameters)
    : scale_(options.scale),
      learned_(options.positions.has_value()),
      positions_(learned_ ? parameters.next({.name = options.positions->name + ".weight",
                                             .rows = options.positions->positions,
                                             .cols = options.positions->hidden_size,
                                             .init_std = options.positions->init_std,
                                             .weight_decay = true})
                          : nullptr) {}

void EmbeddedTokens::forward(const StagePass& pass, ConstTensor x, Tensor y) const {
    if (learned_) {
        const int64_t length = pass.microbatch.seq_length;
        const ConstTensor positions = positions_->weight.row_range(pass.cached.count, length);
        pass.op().add_positions(pass.ctx, x, positions, length, y);
    } else {
        pass.op().scale(pass.ctx, x, scale_, y);
    }
}

void EmbeddedTokens::backward_input(const StagePass& pass, Tensor dx) const {
    if (!learned_) pass.op().scale(pass.ctx, dx, scale_, dx);
}

void EmbeddedTokens::backward_weight(const StagePass& pass, ConstTensor dy) const {
    if (!learned_) return;
    pass.op().positions_gradient(pass.ctx, dy, pass.microbatch.seq_length, positions_->gradient,
                                 pass.weight_gradients.accumulate);
}

}  // namespace vocabpipe
