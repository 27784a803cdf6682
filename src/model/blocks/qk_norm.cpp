// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/qk_norm.hpp"

namespace vocabpipe {

namespace {

LogicalParameter gamma_of_head(const std::string& name, const QkNormOptions& options,
                               int64_t head_size) {
    return {.name = name + ".weight",
            .rows = 1,
            .cols = head_size,
            .init_constant = 1 - options.rms_norm.weight_offset};
}

}  // namespace

QkNorm::QkNorm(const QkNormOptions& options, int64_t head_size, ParameterSource& parameters)
    : rms_norm_(options.rms_norm),
      q_(parameters.next(gamma_of_head(options.q_name, options, head_size))),
      k_(parameters.next(gamma_of_head(options.k_name, options, head_size))) {}

QkNorm::Saved QkNorm::saved_views(const kernels::AttentionShape& shape, SavedViews& views) const {
    return {.before = views.costly.take(shape.qkv_columns()),
            .statistics = views.cheap.statistics(shape.heads + shape.kv_heads)};
}

void QkNorm::forward(const StagePass& pass, const kernels::AttentionShape& shape,
                     const Saved& saved, Tensor out) const {
    pass.op().head_norm_forward(pass.ctx, saved.before, q_->weight, k_->weight, rms_norm_, shape,
                                out, saved.statistics);
}

void QkNorm::backward_input(const StagePass& pass, const kernels::AttentionShape& shape,
                            ConstTensor dy, const Saved& saved, Tensor dx) const {
    pass.op().head_norm_backward_input(pass.ctx, dy, saved.before, q_->weight, k_->weight,
                                       rms_norm_, saved.statistics, shape, dx);
}

void QkNorm::backward_weight(const StagePass& pass, const kernels::AttentionShape& shape,
                             ConstTensor dy, const Saved& saved) const {
    pass.op().head_norm_backward_weight(pass.ctx, dy, saved.before, saved.statistics, shape,
                                        q_->gradient, k_->gradient,
                                        pass.weight_gradients.accumulate);
}

}  // namespace vocabpipe
