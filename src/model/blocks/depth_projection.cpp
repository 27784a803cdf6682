// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/depth_projection.hpp"

namespace vocabpipe {

DepthProjection::DepthProjection(const DepthProjectionOptions& options, ParameterSource& parameters)
    : hidden_size_(options.hidden_size),
      embedded_norm_(options.embedded_norm, parameters),
      hidden_norm_(options.hidden_norm, parameters),
      projection_(options.projection, parameters) {}

DepthProjection::Saved DepthProjection::saved_views(TokenViews& kept, TokenViews& cheap) const {
    Saved saved;
    saved.embedded = kept.take(hidden_size_);
    saved.hidden = kept.take(hidden_size_);
    saved.normed = cheap.take(2 * hidden_size_);
    saved.embedded_statistics = embedded_norm_.statistics_view(cheap);
    saved.hidden_statistics = hidden_norm_.statistics_view(cheap);
    return saved;
}

Tensor DepthProjection::gradient_view(TokenViews& views) const {
    return views.take(2 * hidden_size_);
}

void DepthProjection::normalize(const StagePass& pass, const Saved& saved) const {
    embedded_norm_.forward(pass, saved.embedded, {}, embedded_columns(saved.normed),
                           saved.embedded_statistics);
    hidden_norm_.forward(pass, saved.hidden, {}, hidden_columns(saved.normed),
                         saved.hidden_statistics);
}

void DepthProjection::forward(const StagePass& pass, const Saved& saved, Tensor out) const {
    normalize(pass, saved);
    projection_.forward(pass, saved.normed, out);
}

void DepthProjection::backward_input(const StagePass& pass, ConstTensor dy, const Saved& saved,
                                     Tensor gradient, Tensor d_embedded, ConstTensor residual,
                                     Tensor d_hidden) const {
    projection_.backward_input(pass, dy, gradient);
    embedded_norm_.backward_input(pass, embedded_columns(gradient), saved.embedded,
                                  saved.embedded_statistics, {}, d_embedded);
    hidden_norm_.backward_input(pass, hidden_columns(gradient), saved.hidden,
                                saved.hidden_statistics, residual, d_hidden);
}

void DepthProjection::backward_weight(const StagePass& pass, ConstTensor dy, const Saved& saved,
                                      ConstTensor gradient) const {
    embedded_norm_.backward_weight(pass, gradient.column_range(0, hidden_size_), saved.embedded,
                                   saved.embedded_statistics);
    hidden_norm_.backward_weight(pass, gradient.column_range(hidden_size_, hidden_size_),
                                 saved.hidden, saved.hidden_statistics);
    projection_.backward_weight(pass, dy, saved.normed);
}

BlockWork DepthProjection::work() const {
    BlockWork work{.products = {projection_.product()}};
    for (const Norm* norm : {&embedded_norm_, &hidden_norm_}) {
        work.moved.add(norm->moved());
        work.moved_of_residual.add(norm->moved());
    }
    return work;
}

}  // namespace vocabpipe
