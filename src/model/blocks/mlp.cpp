// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/mlp.hpp"

namespace vocabpipe {

namespace {

LinearOptions fc_options(const MlpOptions& options) {
    LinearOptions fc{.files = options.fc,
                     .out = {options.ffn_hidden_size},
                     .in = options.hidden_size,
                     .bias = options.bias,
                     .init_std = options.fc_init_std,
                     .lora = options.lora};
    if (options.gated) fc.out.push_back(options.ffn_hidden_size);
    return fc;
}

LinearOptions fc_proj_options(const MlpOptions& options) {
    return {.files = options.fc_proj,
            .out = {options.hidden_size},
            .in = options.ffn_hidden_size,
            .bias = options.bias,
            .init_std = options.proj_init_std,
            .lora = options.lora};
}

}  // namespace

Mlp::Mlp(const MlpOptions& options, ParameterSource& parameters)
    : options_(options),
      fc_(fc_options(options), parameters),
      fc_proj_(fc_proj_options(options), parameters) {}

Mlp::Saved Mlp::saved_views(SavedViews& views) const {
    return {.fc = views.costly.all().take(fc_columns()),
            .act = views.cheap.all().take(ffn_columns())};
}

Mlp::Gradients Mlp::gradient_views(TokenViews& views) const {
    return {.fc = views.all().take(fc_columns())};
}

ScratchSize Mlp::scratch(const ScratchFor& use) const {
    // Without a gate the product's gradient becomes that of the activation in place.
    return ScratchSize{.columns = options_.gated ? ffn_columns() : 0}
        .or_larger(fc_.scratch(use))
        .or_larger(fc_proj_.scratch(use));
}

void Mlp::activate(const StagePass& pass, ConstTensor fc, Tensor act) const {
    if (options_.gated) {
        pass.op().gated_forward(pass.ctx, options_.activation, fc, act);
    } else {
        pass.op().activation_forward(pass.ctx, options_.activation, fc, act);
    }
}

void Mlp::forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                  Tensor out) const {
    pass.output.each([&](RowRange rows) {
        const Tensor fc = rows_of(saved.fc, rows);
        const Tensor act = rows_of(saved.act, rows);
        // GELU fused into the product may round differently from the GELU that recompute() runs.
        if (!fused() || pass.recompute == Recompute::selective) {
            fc_.forward(pass, rows_of(x, rows), fc);
            activate(pass, fc, act);
        } else {
            fc_.forward_gelu(pass, rows_of(x, rows), fc, act);
        }
        fc_proj_.forward_onto(pass, act, rows_of(residual, rows), rows_of(out, rows));
    });
}

void Mlp::recompute(const StagePass& pass, ConstTensor /*x*/, const Saved& saved) const {
    activate(pass, saved.fc, saved.act);
}

void Mlp::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor /*x*/,
                         const Saved& saved, const Gradients& gradients, Tensor dx) const {
    pass.input.each([&](RowRange rows) {
        const ConstTensor dy_rows = rows_of(dy, rows);
        const ConstTensor fc = rows_of(saved.fc, rows);
        const ConstTensor act = rows_of(saved.act, rows);
        const Tensor dfc = rows_of(gradients.fc, rows);
        if (options_.gated) {
            const Tensor dact = rows_of(pass.scratch.columns(ffn_columns()), rows);
            fc_proj_.backward_input(pass, dy_rows, act, dact);
            pass.op().gated_backward(pass.ctx, options_.activation, dact, fc, dfc);
        } else if (fused()) {
            fc_proj_.backward_input_gelu(pass, dy_rows, act, fc, dfc);
        } else {
            fc_proj_.backward_input(pass, dy_rows, act, dfc);
            pass.op().activation_backward(pass.ctx, options_.activation, dfc, fc, dfc);
        }
        fc_.backward_input(pass, dfc, rows_of(dx, rows));
    });
}

void Mlp::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                          const Gradients& gradients) const {
    fc_proj_.backward_weight(pass, dy, saved.act);
    fc_.backward_weight(pass, gradients.fc, x);
}

BlockWork Mlp::work(int64_t /*seq_length*/) const {
    // The activation reads `fc` and writes `act`; its backward reads `fc` and the gradient of `act`
    // and writes that of `fc`.
    const int64_t fc = fc_columns() * options_.tensor, act = options_.ffn_hidden_size;
    return {.products = {fc_.product(), fc_proj_.product()},
            .moved = {.forward = fc + act, .backward = 2 * fc + act, .recompute = fc + act}};
}

}  // namespace vocabpipe
