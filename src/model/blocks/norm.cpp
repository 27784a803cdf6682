// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/norm.hpp"

namespace vocabpipe {

Norm::Norm(const NormOptions& options, ParameterSource& parameters)
    : options_(options),
      weight_(parameters.next({.name = options.name + ".weight",
                               .rows = 1,
                               .cols = options.size,
                               .init_constant = 1 - options.weight_offset})),
      bias_(options.kind == Normalization::layer_norm
                ? parameters.next({.name = options.name + ".bias",
                                   .rows = 1,
                                   .cols = options.size,
                                   .gradient_with_previous = true})
                : nullptr) {}

Statistics Norm::statistics_view(TokenViews& views) const {
    return views.statistics(statistics(options_.kind));
}

void Norm::forward(const StagePass& pass, ConstTensor x, ConstTensor residual, Tensor y,
                   Statistics statistics) const {
    const kernels::Operators& op = pass.op();
    const ConstTensor gamma = weight_->weight;
    if (options_.kind == Normalization::rms_norm) {
        op.rms_norm_forward(pass.ctx, x, gamma, rms_norm(), residual, y, statistics);
        return;
    }
    op.layer_norm_forward(pass.ctx, x, gamma, bias_->weight, options_.epsilon, y, statistics);
    if (residual) op.add(pass.ctx, residual, y, y);
}

void Norm::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x,
                          Statistics statistics, ConstTensor residual, Tensor dx) const {
    const kernels::Operators& op = pass.op();
    const ConstTensor gamma = weight_->weight;
    const auto [accumulate, with_input] = pass.weight_gradients;
    const bool with_weight = with_input && weight_->gradient;
    if (options_.kind == Normalization::rms_norm) {
        if (with_weight) {
            op.rms_norm_backward(pass.ctx, dy, x, gamma, rms_norm(), statistics, residual, dx,
                                 weight_->gradient, accumulate);
        } else {
            op.rms_norm_backward_input(pass.ctx, dy, x, gamma, rms_norm(), statistics, residual,
                                       dx);
        }
    } else if (with_weight) {
        op.layer_norm_backward(pass.ctx, dy, x, gamma, statistics, residual, dx, weight_->gradient,
                               bias_->gradient, accumulate);
    } else {
        op.layer_norm_backward_input(pass.ctx, dy, x, gamma, statistics, residual, dx);
    }
}

void Norm::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                           Statistics statistics) const {
    const auto [accumulate, done] = pass.weight_gradients;
    if (done || !weight_->gradient) return;
    if (options_.kind == Normalization::rms_norm) {
        pass.op().rms_norm_backward_weight(pass.ctx, dy, x, statistics, weight_->gradient,
                                           accumulate);
    } else {
        pass.op().layer_norm_backward_weight(pass.ctx, dy, x, statistics, weight_->gradient,
                                             bias_->gradient, accumulate);
    }
}

}  // namespace vocabpipe
