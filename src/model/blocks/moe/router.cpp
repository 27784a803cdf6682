// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/router.hpp"

#include "src/model/blocks/tensor_team.hpp"
#include "src/model/views.hpp"

#include <algorithm>

namespace vocabpipe {

Router::Router(const RouterBlockOptions& options, ParameterSource& parameters)
    : options_(options),
      weight_(parameters.next({.name = options.name + ".weight",
                               .rows = options.experts,
                               .cols = options.hidden_size,
                               .init_std = options.init_std,
                               .weight_decay = true})),
      correction_bias_(options.correction_bias.empty()
                           ? nullptr
                           : parameters.next({.name = options.correction_bias,
                                              .rows = 1,
                                              .cols = options.experts,
                                              .correction_bias = true})) {}

Router::Saved Router::saved_views(SavedViews& views) const {
    return {.logits = views.costly.statistics(options_.experts),
            .log_z = views.costly.statistics(1),
            .load = views.costly.numbers(options_.experts),
            .score_sums = views.costly.numbers(options_.experts),
            .rows = ExpertRows::views(options_.experts, options_.routing.top_k, options_.alone,
                                      views.costly)};
}

Router::Gradients Router::gradient_views(TokenViews& views) const {
    return {.logits = views.take(options_.experts)};
}

int64_t Router::workspace_bytes(const ScratchFor& use) const {
    Views logits, sums;
    logits.take(use.own_tokens(), options_.experts, DType::fp32);
    sums.take(std::max(use.tensor, use.context), 2 * options_.experts, DType::fp32);
    return std::max(logits.used(), sums.used());
}

void Router::forward(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    const kernels::Operators& op = pass.op();
    const ExpertRows& rows = saved.rows;
    op.linear_forward(pass.ctx, x, weight_->weight, {}, saved.logits);
    const ConstTensor bias = correction_bias_ != nullptr ? correction_bias_->weight : ConstTensor();
    op.router_forward(pass.ctx, saved.logits, bias, options_.routing,
                      ExpertRows::integers(rows.choice), rows.weights, saved.load, saved.score_sums,
                      saved.log_z);
    const Tensor numbers[] = {saved.load, saved.score_sums};
    for (TileLink* const link : {pass.team.link, pass.context.link}) {
        if (link != nullptr) sum_numbers(pass, *link, numbers, options_.name);
    }
    if (!options_.alone) return;
    op.sort_by_expert(pass.ctx, ExpertRows::integers(rows.choice),
                      ExpertRows::integers(rows.row_begin), ExpertRows::integers(rows.row_of_slot),
                      ExpertRows::integers(rows.slot_of_row));
}

kernels::RouterLossScales Router::loss_scales(const StagePass& pass) const {
    if (options_.aux_loss == 0 && options_.z_loss == 0) return {};
    const int context = pass.context ? pass.context.cut->ranks() : 1;
    const auto tokens = static_cast<double>(pass.microbatch.size() * context);
    const double of_token = pass.microbatch.weight() / tokens;
    const auto experts = static_cast<double>(options_.experts);
    const auto k = static_cast<double>(options_.routing.top_k);
    return {.balance = static_cast<float>(options_.aux_loss * of_token * experts / (k * tokens)),
            .z = static_cast<float>(options_.z_loss * of_token)};
}

void Router::backward_input(const StagePass& pass, ConstTensor dweights, const Saved& saved,
                            const Gradients& gradients, Tensor dx) const {
    const kernels::Operators& op = pass.op();
    Views workspace(pass.scratch.workspace);
    const Tensor dlogits = gradients.logits.dtype == DType::fp32
                               ? gradients.logits
                               : workspace.take(dx.rows, options_.experts, DType::fp32);
    op.router_backward(pass.ctx, saved.logits, saved.log_z, ExpertRows::integers(saved.rows.choice),
                       dweights, saved.load, options_.routing, loss_scales(pass), dlogits);
    if (dlogits.data != gradients.logits.data) op.convert(pass.ctx, dlogits, gradients.logits);
    op.linear_backward_input(pass.ctx, gradients.logits, weight_->weight, dx);
}

void Router::backward_weight(const StagePass& pass, ConstTensor x, const Saved& saved,
                             const Gradients& gradients) const {
    if (!pass.router_sums.empty()) {
        pass.op().sum_routing(pass.ctx, saved.load, saved.score_sums, saved.log_z,
                              options_.routing.top_k, pass.router_sums, pass.adds_router_sums);
    }
    if (!weight_->gradient) return;
    pass.op().linear_backward_weight(pass.ctx, gradients.logits, x, weight_->gradient, {},
                                     pass.weight_gradients.accumulate);
}

}  // namespace vocabpipe
