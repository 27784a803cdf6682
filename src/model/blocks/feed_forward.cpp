// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/feed_forward.hpp"

namespace vocabpipe {

FeedForward::FeedForward(const FeedForwardOptions& options, ParameterSource& parameters) {
    if (options.moe) {
        moe_.emplace(*options.moe, parameters);
    } else {
        mlp_.emplace(options.mlp, parameters);
    }
}

FeedForward::Saved FeedForward::saved_views(SavedViews& views) const {
    Saved saved;
    if (moe_) {
        saved.moe = moe_->saved_views(views);
    } else {
        saved.mlp = mlp_->saved_views(views);
    }
    return saved;
}

FeedForward::Gradients FeedForward::gradient_views(TokenViews& views) const {
    Gradients gradients;
    if (moe_) {
        gradients.moe = moe_->gradient_views(views);
    } else {
        gradients.mlp = mlp_->gradient_views(views);
    }
    return gradients;
}

ScratchSize FeedForward::scratch(const ScratchFor& use) const {
    return moe_ ? moe_->scratch(use) : mlp_->scratch(use);
}

void FeedForward::forward(const StagePass& pass, ConstTensor x, const Saved& saved,
                          ConstTensor residual, Tensor out) const {
    if (moe_) {
        moe_->forward(pass, x, saved.moe, residual, out);
    } else {
        mlp_->forward(pass, x, saved.mlp, residual, out);
    }
}

void FeedForward::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    if (moe_) {
        moe_->recompute(pass, x, saved.moe);
    } else {
        mlp_->recompute(pass, x, saved.mlp);
    }
}

void FeedForward::backward_input(const StagePass& pass, ConstTensor dy, const Saved& saved,
                                 const Gradients& gradients, Tensor dx) const {
    if (moe_) {
        moe_->backward_input(pass, dy, saved.moe, gradients.moe, dx);
    } else {
        mlp_->backward_input(pass, dy, saved.mlp, gradients.mlp, dx);
    }
}

void FeedForward::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                  const Saved& saved, const Gradients& gradients) const {
    if (moe_) {
        moe_->backward_weight(pass, x, saved.moe, gradients.moe);
    } else {
        mlp_->backward_weight(pass, dy, x, saved.mlp, gradients.mlp);
    }
}

double FeedForward::flops(int64_t seq_length) const {
    return moe_ ? moe_->flops() : mlp_->flops(seq_length);
}

int64_t FeedForward::recompute_traffic() const {
    return moe_ ? moe_->recompute_traffic() : mlp_->recompute_traffic();
}

}  // namespace vocabpipe
