// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/moe.hpp"

#include "src/model/views.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

RouterBlockOptions router_options(const MoeOptions& options) {
    RouterBlockOptions router = options.router;
    router.alone = options.experts.ranks == 1 || options.experts.all_tokens;
    return router;
}

}  // namespace

/// The part of Scratch::workspace that is in use during the whole pass.
struct Moe::Workspace {
    Tensor dweights;  ///< (N/t, k) fp32: gradient of the weights
    std::optional<TeamMemory> team;
};

Moe::Workspace Moe::workspace(Views& views, int64_t tokens, DType dtype) const {
    Workspace of{.dweights = views.take(tokens, per_token_, DType::fp32), .team = {}};
    if (team_) of.team = team_->memory(views, tokens, dtype);
    return of;
}

Moe::Moe(const MoeOptions& options, ParameterSource& parameters)
    : per_token_(options.experts.per_token),
      router_(router_options(options), parameters),
      experts_(options.experts, ExpertWeights(options.experts, parameters)) {
    if (options.experts.ranks > 1 && !options.experts.all_tokens) {
        team_.emplace(options.experts, experts_.weights());
    }
}

Moe::Saved Moe::saved_views(SavedViews& views) const {
    Saved saved;
    saved.router = router_.saved_views(views);
    saved.experts = team_ ? team_->saved_views(views) : experts_.saved_views(views);
    if (team_) saved.routes = team_->routes_views(views.costly);
    return saved;
}

Moe::Gradients Moe::gradient_views(TokenViews& views) const {
    Gradients gradients;
    gradients.router = router_.gradient_views(views);
    gradients.experts = team_ ? team_->gradient_views(views) : experts_.gradient_views(views);
    return gradients;
}

ScratchSize Moe::scratch(const ScratchFor& use, const ScratchSize& beside) const {
    Views views;
    (void)workspace(views, use.own_tokens(), use.dtype);
    ScratchSize size = beside;
    size.workspace = views.used() + std::max(router_.workspace_bytes(use), beside.workspace);
    if (team_) return size;
    size.own_columns = std::max(size.own_columns, experts_.scratch_columns());
    size.workspace = std::max(size.workspace, experts_.workspace_bytes(use));
    return size;
}

void Moe::forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                  Tensor out, const Beside& beside) const {
    if (!team_) {
        if (beside) beside(pass.scratch.workspace);
        router_.forward(pass, x, saved.router);
        experts_.forward(pass, x, saved.router.rows, saved.experts, residual, out);
        return;
    }
    router_.forward(pass, x, saved.router);
    Views views(pass.scratch.workspace);
    const Workspace of = workspace(views, x.rows, x.dtype);
    const Bytes rest = pass.scratch.workspace.subspan(static_cast<size_t>(views.used()));
    team_->forward(pass, *of.team, x, saved.router.rows, saved.routes, saved.experts, residual, out,
                   [&] {
                       if (beside) beside(rest);
                   });
}

void Moe::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    if (!team_) {
        experts_.recompute(pass, x, saved.router.rows, saved.experts);
        return;
    }
    Views views(pass.scratch.workspace);
    const Workspace of = workspace(views, x.rows, x.dtype);
    team_->recompute(pass, *of.team, x, saved.routes, saved.experts);
}

void Moe::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients, Tensor dx, const Beside& beside) const {
    Views views(pass.scratch.workspace);
    const Workspace of = workspace(views, dy.rows, dy.dtype);
    const Bytes rest = pass.scratch.workspace.subspan(static_cast<size_t>(views.used()));
    StagePass of_router = pass;
    of_router.scratch.workspace = rest;
    const auto run_beside = [&] {
        if (beside) beside(rest);
    };
    if (team_) {
        team_->backward_input(pass, *of.team, dy, x, saved.routes, saved.experts, gradients.experts,
                              of.dweights, dx, run_beside);
        // Messages no longer use this memory.
        const Tensor of_logits(of.team->home.data(), dx.rows, dx.cols, dx.dtype);
        router_.backward_input(of_router, of.dweights, saved.router, gradients.router, of_logits);
        pass.op().add(pass.ctx, dx, of_logits, dx);
        return;
    }
    run_beside();
    experts_.backward_inside(pass, dy, saved.router.rows, saved.experts, gradients.experts,
                             of.dweights);
    router_.backward_input(of_router, of.dweights, saved.router, gradients.router, dx);
    experts_.add_input_gradient(pass, saved.router.rows, gradients.experts, dx);
}

void Moe::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                          const Gradients& gradients) const {
    if (team_) {
        Views views(pass.scratch.workspace);
        const Workspace of = workspace(views, x.rows, x.dtype);
        team_->backward_weight(pass, *of.team, dy, x, saved.routes, saved.experts,
                               gradients.experts);
    } else {
        experts_.backward_weight(pass, saved.router.rows, saved.experts, gradients.experts);
    }
    router_.backward_weight(pass, x, saved.router, gradients.router);
}

BlockWork Moe::work() const {
    BlockWork work{.products = {router_.product()}};
    work.add(experts_.work());
    return work;
}

}  // namespace vocabpipe
