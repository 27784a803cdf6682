// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/qk_norm.hpp"

namespace vocabpipe {

namespace {

LogicalParameter gamma_of(const std::string& name, int64_t cols, const QkNormOptions& options) {
    return {.name = name + ".weight",
            .rows = 1,
            .cols = cols,
            .init_constant = 1 - options.rms_norm.weight_offset};
}

// Columns of (N, qkv_columns).

template <class AnyTensor>
AnyTensor q_of(const kernels::AttentionShape& shape, AnyTensor qkv) {
    return qkv.column_range(0, shape.query_columns());
}
template <class AnyTensor>
AnyTensor k_of(const kernels::AttentionShape& shape, AnyTensor qkv) {
    return qkv.column_range(shape.query_columns(), shape.kv_columns());
}
template <class AnyTensor>
AnyTensor v_of(const kernels::AttentionShape& shape, AnyTensor qkv) {
    return qkv.column_range(shape.query_columns() + shape.kv_columns(), shape.kv_columns());
}

Statistics q_statistics(const QkNorm::Saved& saved) {
    return saved.statistics.column_range(0, 1);
}
Statistics k_statistics(const QkNorm::Saved& saved) {
    return saved.statistics.column_range(1, 1);
}

}  // namespace

QkNorm::QkNorm(const QkNormOptions& options, const kernels::AttentionShape& shape,
               ParameterSource& parameters)
    : rms_norm_(options.rms_norm),
      by_head_(options.by_head),
      q_(parameters.next(
          gamma_of(options.q_name, by_head_ ? shape.head_size : shape.query_columns(), options))),
      k_(parameters.next(
          gamma_of(options.k_name, by_head_ ? shape.head_size : shape.kv_columns(), options))) {}

QkNorm::Saved QkNorm::saved_views(const kernels::AttentionShape& shape, SavedViews& views) const {
    return {.before = views.costly.take(shape.qkv_columns()),
            .statistics = views.cheap.statistics(by_head_ ? shape.heads + shape.kv_heads : 2)};
}

void QkNorm::forward(const StagePass& pass, const kernels::AttentionShape& shape,
                     const Saved& saved, Tensor out) const {
    const kernels::Operators& op = pass.op();
    if (by_head_) {
        op.head_norm_forward(pass.ctx, saved.before, q_->weight, k_->weight, rms_norm_, shape, out,
                             saved.statistics);
        return;
    }
    op.rms_norm_forward(pass.ctx, q_of(shape, saved.before), q_->weight, rms_norm_, {},
                        q_of(shape, out), q_statistics(saved));
    op.rms_norm_forward(pass.ctx, k_of(shape, saved.before), k_->weight, rms_norm_, {},
                        k_of(shape, out), k_statistics(saved));
    op.convert(pass.ctx, v_of(shape, saved.before), v_of(shape, out));
}

void QkNorm::backward_input(const StagePass& pass, const kernels::AttentionShape& shape,
                            ConstTensor dy, const Saved& saved, Tensor dx) const {
    const kernels::Operators& op = pass.op();
    if (by_head_) {
        op.head_norm_backward_input(pass.ctx, dy, saved.before, q_->weight, k_->weight, rms_norm_,
                                    saved.statistics, shape, dx);
        return;
    }
    op.rms_norm_backward_input(pass.ctx, q_of(shape, dy), q_of(shape, saved.before), q_->weight,
                               rms_norm_, q_statistics(saved), {}, q_of(shape, dx));
    op.rms_norm_backward_input(pass.ctx, k_of(shape, dy), k_of(shape, saved.before), k_->weight,
                               rms_norm_, k_statistics(saved), {}, k_of(shape, dx));
    op.convert(pass.ctx, v_of(shape, dy), v_of(shape, dx));
}

void QkNorm::backward_weight(const StagePass& pass, const kernels::AttentionShape& shape,
                             ConstTensor dy, const Saved& saved) const {
    const kernels::Operators& op = pass.op();
    const bool accumulate = pass.weight_gradients.accumulate;
    if (by_head_) {
        op.head_norm_backward_weight(pass.ctx, dy, saved.before, saved.statistics, shape,
                                     q_->gradient, k_->gradient, accumulate);
        return;
    }
    op.rms_norm_backward_weight(pass.ctx, q_of(shape, dy), q_of(shape, saved.before),
                                q_statistics(saved), q_->gradient, accumulate);
    op.rms_norm_backward_weight(pass.ctx, k_of(shape, dy), k_of(shape, saved.before),
                                k_statistics(saved), k_->gradient, accumulate);
}

}  // namespace vocabpipe
