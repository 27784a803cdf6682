// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/feed_forward.hpp"

namespace vocabpipe {

StagePass FeedForward::pass_of_shared(const StagePass& pass, Bytes workspace) const {
    StagePass of_shared = pass;
    of_shared.scratch.workspace = workspace;
    if (gated_shared_expert_) {  // one expert: nothing is routed, nor exchanged
        of_shared.router_sums = {};
        of_shared.team = {};
    }
    return of_shared;
}

FeedForward::FeedForward(const FeedForwardOptions& options, ParameterSource& parameters)
    : hidden_size_(options.hidden_size) {
    if (!options.moe) {
        mlp_.emplace(options.mlp, parameters);
        return;
    }
    moe_.emplace(*options.moe, parameters);
    if (options.gated_shared_expert) {
        gated_shared_expert_.emplace(*options.gated_shared_expert, parameters);
    }
    if (options.shared_expert) shared_expert_.emplace(*options.shared_expert, parameters);
}

FeedForward::Saved FeedForward::saved_views(SavedViews& views) const {
    Saved saved;
    if (mlp_) saved.mlp = mlp_->saved_views(views);
    if (moe_) saved.moe = moe_->saved_views(views);
    if (gated_shared_expert_) {
        saved.gated_shared_expert = gated_shared_expert_->saved_views(views);
    }
    if (shared_expert_) saved.shared_expert = shared_expert_->saved_views(views);
    return saved;
}

FeedForward::Gradients FeedForward::gradient_views(TokenViews& views) const {
    Gradients gradients;
    if (mlp_) gradients.mlp = mlp_->gradient_views(views);
    if (moe_) gradients.moe = moe_->gradient_views(views);
    if (gated_shared_expert_) {
        gradients.gated_shared_expert = gated_shared_expert_->gradient_views(views);
    }
    if (shared_expert_) gradients.shared_expert = shared_expert_->gradient_views(views);
    if (gated_shared_expert_ || shared_expert_) gradients.of_shared = views.take(hidden_size_);
    return gradients;
}

ScratchSize FeedForward::scratch(const ScratchFor& use) const {
    if (mlp_) return mlp_->scratch(use);
    ScratchSize beside;
    if (gated_shared_expert_) beside = gated_shared_expert_->scratch(use);
    if (shared_expert_) beside = beside.or_larger(shared_expert_->scratch(use));
    return moe_->scratch(use, beside);
}

void FeedForward::forward(const StagePass& pass, ConstTensor x, const Saved& saved,
                          ConstTensor residual, Tensor out) const {
    if (mlp_) {
        mlp_->forward(pass, x, saved.mlp, residual, out);
        return;
    }
    StagePass whole = pass;  // experts take the rows of all tokens
    whole.output = {};
    const auto shared = [&](Bytes workspace) {
        const StagePass of_shared = pass_of_shared(whole, workspace);
        if (gated_shared_expert_) {
            gated_shared_expert_->forward(of_shared, x, saved.gated_shared_expert, residual, out);
        }
        if (shared_expert_) {
            shared_expert_->forward(of_shared, x, saved.shared_expert, residual, out);
        }
    };
    const bool has_shared = gated_shared_expert_ || shared_expert_;
    moe_->forward(whole, x, saved.moe, has_shared ? ConstTensor(out) : residual, out, shared);
    pass.output.all();
}

void FeedForward::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    if (mlp_) mlp_->recompute(pass, x, saved.mlp);
    if (gated_shared_expert_) gated_shared_expert_->recompute(pass, x, saved.gated_shared_expert);
    if (shared_expert_) shared_expert_->recompute(pass, x, saved.shared_expert);
    if (moe_) moe_->recompute(pass, x, saved.moe);
}

void FeedForward::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                 const Saved& saved, const Gradients& gradients, Tensor dx) const {
    if (mlp_) {
        mlp_->backward_input(pass, dy, x, saved.mlp, gradients.mlp, dx);
        return;
    }
    pass.input.all();
    StagePass whole = pass;
    whole.input = {};
    const auto shared = [&](Bytes workspace) {
        const StagePass of_shared = pass_of_shared(whole, workspace);
        if (gated_shared_expert_) {
            gated_shared_expert_->backward_input(of_shared, dy, x, saved.gated_shared_expert,
                                                 gradients.gated_shared_expert,
                                                 gradients.of_shared);
        }
        if (shared_expert_) {
            shared_expert_->backward_input(of_shared, dy, x, saved.shared_expert,
                                           gradients.shared_expert, gradients.of_shared);
        }
    };
    moe_->backward_input(whole, dy, x, saved.moe, gradients.moe, dx, shared);
    if (gradients.of_shared) pass.op().add(pass.ctx, dx, gradients.of_shared, dx);
}

void FeedForward::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                  const Saved& saved, const Gradients& gradients) const {
    if (mlp_) mlp_->backward_weight(pass, dy, x, saved.mlp, gradients.mlp);
    if (moe_) moe_->backward_weight(pass, dy, x, saved.moe, gradients.moe);
    const StagePass of_shared = pass_of_shared(pass, pass.scratch.workspace);
    if (gated_shared_expert_) {
        gated_shared_expert_->backward_weight(of_shared, dy, x, saved.gated_shared_expert,
                                              gradients.gated_shared_expert);
    }
    if (shared_expert_) {
        shared_expert_->backward_weight(of_shared, dy, x, saved.shared_expert,
                                        gradients.shared_expert);
    }
}

BlockWork FeedForward::work(int64_t seq_length) const {
    if (mlp_) return mlp_->work(seq_length);
    BlockWork work = moe_->work();
    if (gated_shared_expert_) work.add(gated_shared_expert_->work());
    if (shared_expert_) work.add(shared_expert_->work(seq_length));
    return work;
}

}  // namespace vocabpipe
