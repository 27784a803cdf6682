// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/sublayer.hpp"

namespace vocabpipe {

namespace {

std::optional<Norm> norm_if(const std::optional<NormOptions>& options,
                            ParameterSource& parameters) {
    if (!options) return std::nullopt;
    return Norm(*options, parameters);
}

}  // namespace

template <Block Inner>
Sublayer<Inner>::Sublayer(const SublayerOptions<typename Inner::Options>& options,
                          ParameterSource& parameters)
    : hidden_size_(hidden_size_of(options.block)),
      norm_(norm_if(options.norm, parameters)),
      block_(options.block, parameters),
      post_norm_(norm_if(options.post_norm, parameters)) {}

template <Block Inner>
typename Sublayer<Inner>::Saved Sublayer<Inner>::saved_views(SavedViews& views) const {
    Saved saved;
    if (norm_) {
        saved.norm_statistics = norm_->statistics_view(views.cheap);
        saved.norm = views.cheap.take(hidden_size_);
    }
    saved.block = block_.saved_views(views);
    if (post_norm_) {
        saved.out = views.costly.take(hidden_size_);
        saved.post_statistics = post_norm_->statistics_view(views.costly);
    }
    return saved;
}

template <Block Inner>
typename Sublayer<Inner>::Gradients Sublayer<Inner>::gradient_views(TokenViews& views) const {
    Gradients gradients;
    gradients.in = views.take(hidden_size_);
    gradients.block = block_.gradient_views(views);
    if (post_norm_) gradients.out = views.take(hidden_size_);
    return gradients;
}

template <Block Inner>
ScratchSize Sublayer<Inner>::scratch(const ScratchFor& use) const {
    return ScratchSize{.own_columns = hidden_size_}.or_larger(block_.scratch(use));
}

template <Block Inner>
void Sublayer<Inner>::forward(const StagePass& pass, ConstTensor x, ConstTensor residual,
                              const Saved& saved, Tensor out) const {
    StagePass of_block = pass;
    if (norm_) {
        const auto norm = [&](RowRange rows) {
            norm_->forward(pass, rows_of(x, rows), {}, rows_of(saved.norm, rows),
                           rows_of(saved.norm_statistics, rows));
        };
        if (pass.input) {
            of_block.input = pass.input.prepared_by(norm);
        } else {
            norm(kAllRows);
        }
    }
    const ConstTensor in = block_input(x, saved);
    if (!post_norm_) {
        block_.forward(of_block, in, saved.block, residual, out);
        return;
    }
    const auto post_norm = [&](RowRange rows) {
        const Tensor sum =  // scratch if only statistics are needed
            out ? out : pass.scratch.own_rows(saved.out.rows, hidden_size_);
        post_norm_->forward(pass, rows_of(saved.out, rows), rows_of(residual, rows),
                            rows_of(sum, rows), rows_of(saved.post_statistics, rows));
    };
    if (pass.output) of_block.output = pass.output.finished_by(post_norm);
    block_.forward(of_block, in, saved.block, {}, saved.out);
    if (!pass.output) post_norm(kAllRows);
}

template <Block Inner>
void Sublayer<Inner>::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    if (norm_) norm_->forward(pass, x, {}, saved.norm, saved.norm_statistics);
    block_.recompute(pass, block_input(x, saved), saved.block);
}

template <Block Inner>
void Sublayer<Inner>::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                     const Saved& saved, const Gradients& gradients,
                                     ConstTensor residual, Tensor dx) const {
    StagePass of_block = pass;
    if (post_norm_) {
        pass.input.all();  // a norm's weight gradient is a sum over all rows
        of_block.input = {};
        post_norm_->backward_input(pass, dy, saved.out, saved.post_statistics, {}, gradients.out);
    }
    const auto leave_block = [&](RowRange rows) {
        if (norm_) {
            norm_->backward_input(pass, rows_of(gradients.in, rows), rows_of(x, rows),
                                  rows_of(saved.norm_statistics, rows), rows_of(residual, rows),
                                  rows_of(dx, rows));
        } else {
            pass.op().add(pass.ctx, rows_of(residual, rows), rows_of(gradients.in, rows),
                          rows_of(dx, rows));
        }
    };
    if (pass.output) of_block.output = pass.output.finished_by(leave_block);
    block_.backward_input(of_block, block_gradient(dy, gradients), block_input(x, saved),
                          saved.block, gradients.block, gradients.in);
    if (!pass.output) leave_block(kAllRows);
}

template <Block Inner>
void Sublayer<Inner>::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                      const Saved& saved, const Gradients& gradients) const {
    if (post_norm_) post_norm_->backward_weight(pass, dy, saved.out, saved.post_statistics);
    block_.backward_weight(pass, block_gradient(dy, gradients), block_input(x, saved), saved.block,
                           gradients.block);
    if (norm_) norm_->backward_weight(pass, gradients.in, x, saved.norm_statistics);
}

template <Block Inner>
BlockWork Sublayer<Inner>::work(int64_t seq_length) const {
    BlockWork work = block_.work(seq_length);
    // The residual and the block's output are read and their sum is written; gradients likewise.
    MovedElements moved{.forward = 3 * hidden_size_, .backward = 3 * hidden_size_};
    for (const std::optional<Norm>* norm : {&norm_, &post_norm_}) {
        if (!*norm) continue;
        moved.add((*norm)->moved());
        if (norm == &norm_) moved.recompute += (*norm)->moved().forward;
    }
    work.add({.moved = moved, .moved_of_residual = moved});
    return work;
}

template class Sublayer<AnyAttention>;
template class Sublayer<Mlp>;
template class Sublayer<FeedForward>;

}  // namespace vocabpipe
