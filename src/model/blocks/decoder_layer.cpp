// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/decoder_layer.hpp"

namespace vocabpipe {

DecoderLayer::DecoderLayer(const DecoderLayerOptions& options, ParameterSource& parameters)
    : hidden_size_(hidden_size_of(options.attention.block)),
      parallel_(options.parallel),
      attention_(options.attention, parameters),
      mlp_(options.mlp, parameters) {}

DecoderLayer::Saved DecoderLayer::saved_views(SavedViews& views) const {
    Saved saved;
    saved.attention = attention_.saved_views(views);
    if (!parallel_) saved.middle = views.costly.take(hidden_size_);
    saved.mlp = mlp_.saved_views(views);
    return saved;
}

DecoderLayer::Gradients DecoderLayer::gradient_views(TokenViews& views) const {
    Gradients gradients;
    gradients.attention = attention_.gradient_views(views);
    if (!parallel_) gradients.middle = views.take(hidden_size_);
    gradients.mlp = mlp_.gradient_views(views);
    return gradients;
}

ScratchSize DecoderLayer::scratch(const ScratchFor& use) const {
    return attention_.scratch(use).or_larger(mlp_.scratch(use));
}

void DecoderLayer::forward(const StagePass& pass, ConstTensor x, const Saved& saved,
                           Tensor out) const {
    const Tensor middle = parallel_ ? out : saved.middle;
    attention_.forward(pass.first_part(), x, x, saved.attention, middle);
    mlp_.forward(pass.last_part(), mlp_input(x, saved), middle, saved.mlp, out);
}

void DecoderLayer::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    attention_.recompute(pass, x, saved.attention);
    mlp_.recompute(pass, mlp_input(x, saved), saved.mlp);
}

void DecoderLayer::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                  const Saved& saved, const Gradients& gradients, Tensor dx) const {
    const Tensor middle = parallel_ ? dx : gradients.middle;
    mlp_.backward_input(pass.first_part(), dy, mlp_input(x, saved), saved.mlp, gradients.mlp, dy,
                        middle);
    attention_.backward_input(pass.last_part(), attention_gradient(dy, gradients), x,
                              saved.attention, gradients.attention, middle, dx);
}

void DecoderLayer::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                   const Saved& saved, const Gradients& gradients) const {
    mlp_.backward_weight(pass, dy, mlp_input(x, saved), saved.mlp, gradients.mlp);
    attention_.backward_weight(pass, attention_gradient(dy, gradients), x, saved.attention,
                               gradients.attention);
}

BlockWork DecoderLayer::work(int64_t seq_length) const {
    BlockWork work = attention_.work(seq_length);
    work.add(mlp_.work(seq_length));
    return work;
}

}  // namespace vocabpipe
