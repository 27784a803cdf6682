// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/moe.hpp"

#include "src/model/views.hpp"

#include <vector>

namespace vocabpipe {

namespace {

/// Of Scratch::workspace: the gradient of the weights, then what the router needs.
struct Workspace {
    Workspace(Views& views, int64_t tokens, int64_t per_token)
        : dweights(views.take(tokens, per_token, DType::fp32)) {}
    Tensor dweights;  ///< (N, k)
};

}  // namespace

Moe::Moe(const MoeOptions& options, ParameterSource& parameters)
    : per_token_(options.experts.per_token),
      router_(options.router, parameters),
      experts_(options.experts, parameters) {}

Moe::Saved Moe::saved_views(SavedViews& views) const {
    Saved saved;
    saved.router = router_.saved_views(views);
    saved.experts = experts_.saved_views(views);
    return saved;
}

Moe::Gradients Moe::gradient_views(TokenViews& views) const {
    Gradients gradients;
    gradients.router = router_.gradient_views(views);
    gradients.experts = experts_.gradient_views(views);
    return gradients;
}

ScratchSize Moe::scratch(const ScratchFor& use) const {
    const int64_t tokens = use.sequences * use.seq_length;
    Views views;
    const Workspace workspace(views, tokens, per_token_);
    return {.columns = experts_.scratch_columns(),
            .workspace = views.used() + router_.workspace_bytes(tokens)};
}

void Moe::forward(const StagePass& pass, ConstTensor x, const Saved& saved, ConstTensor residual,
                  Tensor out) const {
    router_.forward(pass, x, saved.router);
    experts_.forward(pass, x, saved.router.rows, saved.experts, residual, out);
}

void Moe::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    experts_.recompute(pass, x, saved.router.rows, saved.experts);
}

void Moe::backward_input(const StagePass& pass, ConstTensor dy, const Saved& saved,
                         const Gradients& gradients, Tensor dx) const {
    Views views(pass.scratch.workspace);
    const Workspace workspace(views, dy.rows, per_token_);
    StagePass of_router = pass;
    of_router.scratch.workspace = pass.scratch.workspace.subspan(static_cast<size_t>(views.used()));
    const std::vector<int32_t> begin = saved.router.rows.row_begin_on_host(pass);
    experts_.backward_inside(pass, dy, saved.router.rows, begin, saved.experts, gradients.experts,
                             workspace.dweights);
    router_.backward_input(of_router, workspace.dweights, saved.router, gradients.router, dx);
    experts_.add_input_gradient(pass, saved.router.rows, begin, gradients.experts, dx);
}

void Moe::backward_weight(const StagePass& pass, ConstTensor x, const Saved& saved,
                          const Gradients& gradients) const {
    experts_.backward_weight(pass, saved.router.rows, saved.experts, gradients.experts);
    router_.backward_weight(pass, x, saved.router, gradients.router);
}

}  // namespace vocabpipe
