// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/qk_norm.hpp"

#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/tensor_team.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/tile_link.hpp"

#include <array>

namespace vocabpipe {

namespace {

LogicalParameter gamma_of(const std::string& name, int64_t cols, const QkNormOptions& options) {
    return {.name = name + ".weight",
            .rows = 1,
            .cols = cols,
            .init_constant = 1 - options.rms_norm.weight_offset,
            .cut = options.by_head ? TensorCut::repeated : TensorCut::columns};
}

/// Heads of q and k are normed by one operator.
LogicalParameter gamma_of_k(const QkNormOptions& options, int64_t cols) {
    LogicalParameter gamma = gamma_of(options.k_name, cols, options);
    gamma.gradient_with_previous = options.by_head;
    return gamma;
}

/// Sums of the rows of q and of k: (1, N) fp32 each.
struct RowSums {
    RowSums(Views& views, int64_t rows)
        : q(views.take(1, rows, DType::fp32)), k(views.take(1, rows, DType::fp32)) {}
    Tensor q, k;
};

Statistics q_of(Statistics statistics) {
    return statistics.column_range(0, 1);
}
Statistics k_of(Statistics statistics) {
    return statistics.column_range(1, 1);
}

/// Tensor ranks have some of the columns that a norm spans: the sums that make(sums) computes
/// become sums over all ranks. Returns the options of q and of k.
template <typename Make>
std::array<kernels::RmsNormOptions, 2> over_all_heads(const StagePass& pass,
                                                      const kernels::AttentionShape& shape,
                                                      const kernels::RmsNormOptions& options,
                                                      const std::string& name, Make&& make) {
    if (!pass.team) return {options, options};
    Views views(pass.scratch.workspace);
    const RowSums sums(views, shape.tokens());
    make(sums);
    StagePass of_sums = pass;
    of_sums.scratch.workspace = pass.scratch.workspace.subspan(static_cast<size_t>(views.used()));
    sum_numbers(of_sums, *pass.team.link, std::array{sums.q, sums.k}, name);
    kernels::RmsNormOptions of_q = options, of_k = options;
    of_q.sums = sums.q;
    of_q.columns = shape.query_columns() * pass.team.link->size();
    of_k.sums = sums.k;
    of_k.columns = shape.key_columns() * pass.team.link->size();
    return {of_q, of_k};
}

}  // namespace

QkNorm::QkNorm(const QkNormOptions& options, const kernels::AttentionShape& shape,
               ParameterSource& parameters)
    : name_(options.q_name),
      rms_norm_(options.rms_norm),
      by_head_(options.by_head),
      q_(parameters.next(
          gamma_of(options.q_name, by_head_ ? shape.head_size : shape.query_columns(), options))),
      k_(parameters.next(gamma_of_k(options, by_head_ ? shape.head_size : shape.key_columns()))) {}

QkNorm::Saved QkNorm::saved_views(const kernels::AttentionShape& shape, SavedViews& views) const {
    return {.before = views.costly.take(shape.qkv_columns()),
            .statistics = views.cheap.statistics(statistics(shape))};
}

int64_t QkNorm::workspace_bytes(const ScratchFor& use) const {
    if (by_head_ || use.tensor == 1) return 0;
    const int64_t tokens = use.sequences * use.seq_length;
    Views views;
    (void)RowSums(views, tokens);
    (void)views.take(use.tensor, 2 * tokens, DType::fp32);  // sum_numbers()
    return views.used();
}

void QkNorm::forward(const StagePass& pass, const kernels::AttentionShape& shape,
                     ConstTensor before, Statistics statistics, Tensor out) const {
    const kernels::Operators& op = pass.op();
    if (by_head_) {
        op.head_norm_forward(pass.ctx, before, q_->weight, k_->weight, rms_norm_, shape, out,
                             statistics);
        return;
    }
    const ConstTensor q = queries_of(before, shape), k = keys_of(before, shape);
    const auto [of_q, of_k] =
        over_all_heads(pass, shape, rms_norm_, name_, [&](const RowSums& sums) {
            op.rms_norm_sums(pass.ctx, {}, q, {}, rms_norm_, {}, sums.q);
            op.rms_norm_sums(pass.ctx, {}, k, {}, rms_norm_, {}, sums.k);
        });
    op.rms_norm_forward(pass.ctx, q, q_->weight, of_q, {}, queries_of(out, shape),
                        q_of(statistics));
    op.rms_norm_forward(pass.ctx, k, k_->weight, of_k, {}, keys_of(out, shape), k_of(statistics));
    op.convert(pass.ctx, values_of(before, shape), values_of(out, shape));
}

void QkNorm::backward_input(const StagePass& pass, const kernels::AttentionShape& shape,
                            ConstTensor dy, ConstTensor before, Statistics statistics,
                            Tensor dx) const {
    const kernels::Operators& op = pass.op();
    if (by_head_) {
        op.head_norm_backward_input(pass.ctx, dy, before, q_->weight, k_->weight, rms_norm_,
                                    statistics, shape, dx);
        return;
    }
    const ConstTensor q = queries_of(before, shape), k = keys_of(before, shape);
    const ConstTensor dq = queries_of(dy, shape), dk = keys_of(dy, shape);
    const auto [of_q, of_k] =
        over_all_heads(pass, shape, rms_norm_, name_, [&](const RowSums& sums) {
            op.rms_norm_sums(pass.ctx, dq, q, q_->weight, rms_norm_, q_of(statistics), sums.q);
            op.rms_norm_sums(pass.ctx, dk, k, k_->weight, rms_norm_, k_of(statistics), sums.k);
        });
    op.rms_norm_backward_input(pass.ctx, dq, q, q_->weight, of_q, q_of(statistics), {},
                               queries_of(dx, shape));
    op.rms_norm_backward_input(pass.ctx, dk, k, k_->weight, of_k, k_of(statistics), {},
                               keys_of(dx, shape));
    op.convert(pass.ctx, values_of(dy, shape), values_of(dx, shape));
}

void QkNorm::backward_weight(const StagePass& pass, const kernels::AttentionShape& shape,
                             ConstTensor dy, ConstTensor before, Statistics statistics) const {
    const kernels::Operators& op = pass.op();
    const bool accumulate = pass.weight_gradients.accumulate;
    if (by_head_) {
        if (!q_->gradient) return;
        op.head_norm_backward_weight(pass.ctx, dy, before, statistics, shape, q_->gradient,
                                     k_->gradient, accumulate);
        return;
    }
    if (q_->gradient) {
        op.rms_norm_backward_weight(pass.ctx, queries_of(dy, shape), queries_of(before, shape),
                                    q_of(statistics), q_->gradient, accumulate);
    }
    if (k_->gradient) {
        op.rms_norm_backward_weight(pass.ctx, keys_of(dy, shape), keys_of(before, shape),
                                    k_of(statistics), k_->gradient, accumulate);
    }
}

}  // namespace vocabpipe
