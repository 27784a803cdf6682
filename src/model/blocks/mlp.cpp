// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/mlp.hpp"

namespace vocabpipe {

namespace {

LinearOptions fc_options(const MlpOptions& options) {
    LinearOptions fc{.files = options.fc,
                     .out = {options.ffn_hidden_size},
                     .in = options.hidden_size,
                     .bias = options.bias,
                     .init_std = options.fc_init_std};
    if (options.gated) fc.out.push_back(options.ffn_hidden_size);
    return fc;
}

LinearOptions fc_proj_options(const MlpOptions& options) {
    return {.files = options.fc_proj,
            .out = {options.hidden_size},
            .in = options.ffn_hidden_size,
            .bias = options.bias,
            .init_std = options.proj_init_std};
}

}  // namespace

Mlp::Mlp(const MlpOptions& options, ParameterSource& parameters)
    : options_(options),
      fc_(fc_options(options), parameters),
      fc_proj_(fc_proj_options(options), parameters) {}

Mlp::Saved Mlp::saved_views(SavedViews& views) const {
    return {.fc = views.costly.take(fc_columns()),
            .act = views.cheap.take(options_.ffn_hidden_size)};
}

Mlp::Gradients Mlp::gradient_views(TokenViews& views) const {
    return {.fc = views.take(fc_columns())};
}

ScratchSize Mlp::scratch(const ScratchFor& /*use*/) const {
    // Without a gate the product's gradient becomes that of the activation in place.
    return ScratchSize{.columns = options_.gated ? options_.ffn_hidden_size : 0}.or_larger(
        fc_proj_.scratch());
}

void Mlp::activate(const StagePass& pass, const Saved& saved) const {
    if (options_.gated) {
        pass.op().gated_forward(pass.ctx, options_.activation, saved.fc, saved.act);
    } else {
        pass.op().activation_forward(pass.ctx, options_.activation, saved.fc, saved.act);
    }
}

void Mlp::forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                  Tensor out) const {
    // GELU within the product may round differently from the one that recompute() runs.
    if (!fused() || pass.recompute == Recompute::selective) {
        fc_.forward(pass, x, saved.fc);
        activate(pass, saved);
    } else {
        fc_.forward_gelu(pass, x, saved.fc, saved.act);
    }
    fc_proj_.forward_onto(pass, saved.act, residual, out);
}

void Mlp::recompute(const StagePass& pass, ConstTensor /*x*/, const Saved& saved) const {
    activate(pass, saved);
}

void Mlp::backward_input(const StagePass& pass, ConstTensor dy, const Saved& saved,
                         const Gradients& gradients, Tensor dx) const {
    if (options_.gated) {
        const Tensor dact = pass.scratch.columns(options_.ffn_hidden_size);
        fc_proj_.backward_input(pass, dy, dact);
        pass.op().gated_backward(pass.ctx, options_.activation, dact, saved.fc, gradients.fc);
    } else if (fused()) {
        fc_proj_.backward_input_gelu(pass, dy, saved.fc, gradients.fc);
    } else {
        fc_proj_.backward_input(pass, dy, gradients.fc);
        pass.op().activation_backward(pass.ctx, options_.activation, gradients.fc, saved.fc,
                                      gradients.fc);
    }
    fc_.backward_input(pass, gradients.fc, dx);
}

void Mlp::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                          const Gradients& gradients) const {
    fc_proj_.backward_weight(pass, dy, saved.act);
    fc_.backward_weight(pass, gradients.fc, x);
}

}  // namespace vocabpipe
