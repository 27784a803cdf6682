// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/cut_linear.hpp"

#include "src/model/blocks/tensor_team.hpp"

namespace vocabpipe {

namespace {

LinearOptions with_cut(LinearOptions options, TensorCut cut) {
    options.cut = cut;
    return options;
}

}  // namespace

// --- ColumnLinear

ColumnLinear::ColumnLinear(const LinearOptions& options, ParameterSource& parameters)
    : name_(options.files.name), product_(with_cut(options, TensorCut::rows), parameters) {}

void ColumnLinear::forward(const StagePass& pass, ConstTensor x, Tensor y) const {
    gather_rows(pass, x, name_, [&](ConstTensor piece, RowRange rows) {
        product_.forward(pass, piece, rows_of(y, rows));
    });
}

void ColumnLinear::forward_gelu(const StagePass& pass, ConstTensor x, Tensor before,
                                Tensor y) const {
    gather_rows(pass, x, name_, [&](ConstTensor piece, RowRange rows) {
        product_.forward_gelu(pass, piece, rows_of(before, rows), rows_of(y, rows));
    });
}

void ColumnLinear::backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const {
    if (!pass.team) return product_.backward_input(pass, dy, dx);
    const auto make = [&](RowRange rows, Tensor partial) {
        product_.backward_input(pass, rows_of(dy, rows), partial);
    };
    sum_rows(pass, name_, make, {}, dx);
}

void ColumnLinear::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const {
    if (!product_.is_trained()) return;
    product_.backward_weight(pass, dy, gather_rows(pass, x, name_));
}

// --- RowLinear

RowLinear::RowLinear(const LinearOptions& options, ParameterSource& parameters)
    : name_(options.files.name), product_(with_cut(options, TensorCut::columns), parameters) {}

void RowLinear::forward_onto(const StagePass& pass, ConstTensor x, ConstTensor residual,
                             Tensor y) const {
    if (!pass.team || !y) return product_.forward_onto(pass, x, residual, y);
    const auto make = [&](RowRange rows, Tensor partial) {
        product_.forward_without_bias(pass, rows_of(x, rows), partial);
    };
    sum_rows(pass, name_, make, {.bias = product_.bias(), .residual = residual}, y);
}

void RowLinear::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x,
                               Tensor dx) const {
    const ConstTensor all = gather_rows(pass, dy, name_, [&](ConstTensor piece, RowRange rows) {
        product_.backward_input(pass, piece, rows_of(dx, rows));
    });
    if (pass.team && pass.weight_gradients.with_input) product_.backward_weight(pass, all, x, dy);
}

void RowLinear::backward_input_gelu(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                    ConstTensor before, Tensor dx) const {
    const ConstTensor all = gather_rows(pass, dy, name_, [&](ConstTensor piece, RowRange rows) {
        product_.backward_input_gelu(pass, piece, rows_of(before, rows), rows_of(dx, rows));
    });
    if (pass.team && pass.weight_gradients.with_input) product_.backward_weight(pass, all, x, dy);
}

void RowLinear::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const {
    if (!pass.team) return product_.backward_weight(pass, dy, x);
    if (pass.weight_gradients.with_input || !product_.is_trained()) return;
    product_.backward_weight(pass, gather_rows(pass, dy, name_), x, dy);
}

}  // namespace vocabpipe
