// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/experts.hpp"

#include "src/model/blocks/whole_exchange.hpp"
#include "vocabpipe/tile_link.hpp"

#include <algorithm>
#include <vector>

namespace vocabpipe {

namespace {

/// The tensors of files: for every expert in turn its matrices `names`, each of `rows` rows.
std::vector<FilePart> parts_of_experts(const ExpertsOptions& options,
                                       const std::vector<std::string>& names, int64_t rows) {
    std::vector<FilePart> parts;
    for (int64_t expert = 0; expert < options.experts; ++expert) {
        for (const std::string& name : names) {
            const std::string number = options.numbered ? std::to_string(expert) + "." : "";
            parts.push_back({.name = options.name + number + name + ".weight", .count = rows});
        }
    }
    return parts;
}

LogicalParameter gate_up_of(const ExpertsOptions& o) {
    return {.name = o.name + "gate_up.weight",
            .rows = o.experts * 2 * o.ffn_hidden_size,
            .cols = o.hidden_size,
            .init_std = o.gate_up_init_std,
            .weight_decay = true,
            .parts = parts_of_experts(o, {o.gate_name, o.up_name}, o.ffn_hidden_size),
            .cut = o.cut,
            .expert_cut = TensorCut::rows,
            .ranges = std::vector(static_cast<size_t>(2 * o.experts), o.ffn_hidden_size)};
}

LogicalParameter down_of(const ExpertsOptions& o) {
    return {.name = o.name + "down.weight",
            .rows = o.experts * o.hidden_size,
            .cols = o.ffn_hidden_size,
            .init_std = o.down_init_std,
            .weight_decay = true,
            .parts = parts_of_experts(o, {o.down_name}, o.hidden_size),
            .cut = o.cut,
            .expert_cut = TensorCut::columns};
}

}  // namespace

ExpertWeights::ExpertWeights(const ExpertsOptions& options, ParameterSource& parameters)
    : gate_up(parameters.next(gate_up_of(options))), down(parameters.next(down_of(options))) {}

Experts::Experts(const ExpertsOptions& options, const ExpertWeights& weights)
    : options_(options),
      weights_(weights),
      kept_(std::make_shared<KeptOnHost<std::vector<RowRange>>>()) {}

Experts::Saved Experts::saved_views(SavedViews& views) const {
    const int64_t k = options_.per_token;
    const int64_t f = options_.own_ffn();
    return {.in = rows_of_slots(views.cheap.take(k * options_.hidden_size), k),
            .gate_up = rows_of_slots(views.costly.take(k * 2 * f), k),
            .act = rows_of_slots(views.cheap.take(k * f), k)};
}

Experts::Gradients Experts::gradient_views(TokenViews& views) const {
    const int64_t k = options_.per_token;
    return {.out = rows_of_slots(views.take(k * options_.hidden_size), k),
            .gate_up = rows_of_slots(views.take(k * 2 * options_.own_ffn()), k)};
}

int64_t Experts::scratch_columns() const {
    return options_.per_token * std::max(options_.hidden_size, options_.own_ffn());
}

Tensor Experts::partials(Views& views, int64_t tokens, DType dtype) const {
    return views.take(options_.ranks * tokens, options_.hidden_size, dtype);
}

int64_t Experts::workspace_bytes(const ScratchFor& use) const {
    if (options_.ranks == 1) return 0;
    Views views;
    (void)partials(views, use.sequences * use.seq_length, use.dtype);
    return views.used();
}

void Experts::forward(const StagePass& pass, ConstTensor x, const ExpertRows& rows,
                      const Saved& saved, ConstTensor residual, Tensor out) const {
    const kernels::Operators& op = pass.op();
    const std::vector<RowRange>& of_all = kept_->keep(rows.row_begin, rows.on_host(pass));
    const int rank = options_.ranks == 1 ? 0 : pass.experts->rank();
    const int groups = options_.ranks / options_.expert_tensor;
    const size_t count = of_all.size() / static_cast<size_t>(groups);
    const auto group = static_cast<size_t>(rank / options_.expert_tensor);
    const auto of_experts = std::span(of_all).subspan(group * count, count);
    const RowRange own{of_experts.front().first, of_experts.back().end};
    const Tensor slots = rows_of(rows_of_slots(rows.slot_of_row, rows.per_token), own);
    op.gather_rows(pass.ctx, x, ExpertRows::integers(slots), rows.per_token, {},
                   rows_of(saved.in, own));
    op.grouped_linear_forward(pass.ctx, saved.in, weights_.gate_up->weight, of_experts, 0,
                              saved.gate_up);
    op.gated_forward(pass.ctx, options_.activation, rows_of(saved.gate_up, own),
                     rows_of(saved.act, own));
    if (!out) return;
    const Tensor made = pass.scratch.own_rows(saved.act.rows, options_.hidden_size);
    op.grouped_linear_forward(pass.ctx, saved.act, weights_.down->weight, of_experts, 0, made);
    const auto combine = [&](ConstTensor addend, Tensor sum) {
        op.combine_rows(pass.ctx, made, ExpertRows::integers(rows.row_of_slot), rows.per_token,
                        rows.weights, addend, sum);
    };
    if (options_.ranks == 1) {
        combine(residual, out);
        return;
    }

    for (const RowRange of_others : {RowRange{0, own.first}, RowRange{own.end, made.rows}}) {
        op.set_zero(pass.ctx, bytes_of<std::byte>(rows_of(made, of_others)));
    }
    Views views(pass.scratch.workspace);
    sum_whole(
        pass, *pass.experts, options_.name, partials(views, x.rows, x.dtype),
        [&](Tensor own_sum) { combine({}, own_sum); }, {}, residual, out);
}

void Experts::recompute(const StagePass& pass, ConstTensor x, const ExpertRows& rows,
                        const Saved& saved) const {
    pass.op().gather_rows(pass.ctx, x, ExpertRows::integers(rows.slot_of_row), rows.per_token, {},
                          saved.in);
    pass.op().gated_forward(pass.ctx, options_.activation, saved.gate_up, saved.act);
}

void Experts::backward_inside(const StagePass& pass, ConstTensor dy, const ExpertRows& rows,
                              const Saved& saved, const Gradients& gradients,
                              Tensor dweights) const {
    const kernels::Operators& op = pass.op();
    const std::span<const RowRange> of_experts = kept_->find(rows.row_begin);
    const std::span<const int32_t> slots = ExpertRows::integers(rows.slot_of_row);
    op.gather_rows(pass.ctx, dy, slots, rows.per_token, {}, gradients.out);
    const Tensor dact = pass.scratch.own_rows(saved.act.rows, options_.own_ffn());
    op.grouped_linear_backward_input(pass.ctx, gradients.out, weights_.down->weight, of_experts,
                                     dact);
    // <dy, W act> = <W^T dy, act>: the experts' output need not be kept.
    op.combine_backward_weights(pass.ctx, dact, saved.act, slots, dweights);
    op.scale_rows(pass.ctx, dact, slots, rows.weights, dact);
    op.scale_rows(pass.ctx, gradients.out, slots, rows.weights, gradients.out);
    op.gated_backward(pass.ctx, options_.activation, dact, saved.gate_up, gradients.gate_up);
}

void Experts::add_input_gradient(const StagePass& pass, const ExpertRows& rows,
                                 const Gradients& gradients, Tensor dx) const {
    const kernels::Operators& op = pass.op();
    const std::span<const RowRange> of_experts = kept_->find(rows.row_begin);
    const Tensor din = pass.scratch.own_rows(gradients.gate_up.rows, options_.hidden_size);
    op.grouped_linear_backward_input(pass.ctx, gradients.gate_up, weights_.gate_up->weight,
                                     of_experts, din);
    op.combine_rows(pass.ctx, din, ExpertRows::integers(rows.row_of_slot), rows.per_token, {}, dx,
                    dx);
}

void Experts::backward_weight(const StagePass& pass, const ExpertRows& rows, const Saved& saved,
                              const Gradients& gradients) const {
    const kernels::Operators& op = pass.op();
    const std::span<const RowRange> of_experts = kept_->find(rows.row_begin);
    const bool accumulate = pass.weight_gradients.accumulate;
    if (weights_.down->gradient) {
        op.grouped_linear_backward_weight(pass.ctx, gradients.out, saved.act, of_experts,
                                          weights_.down->gradient, accumulate);
    }
    if (weights_.gate_up->gradient) {
        op.grouped_linear_backward_weight(pass.ctx, gradients.gate_up, saved.in, of_experts,
                                          weights_.gate_up->gradient, accumulate);
    }
}

BlockWork Experts::work() const {
    const int64_t k = options_.per_token, h = options_.hidden_size, f = options_.ffn_hidden_size;
    const auto product = [&](int64_t in, int64_t out) {
        return BlockProduct{
            .in = in, .out = out, .cut = options_.cut, .experts = options_.experts, .per_token = k};
    };
    const int64_t copies = k * options_.expert_tensor;  // of a token's row; each has f / x columns
    // Forward copies rows, activates them, and adds them up with weights. Backward copies rows of
    // dy, multiplies rows of f for the weights' gradients, scales rows of both sizes, goes back
    // through the activation, and adds up.
    return {.products = {product(h, 2 * f), product(f, h)},
            .moved = {.forward = copies * 3 * h + k * 3 * f,
                      .backward = copies * 5 * h + k * 9 * f,
                      .recompute = copies * 2 * h + k * 3 * f}};
}

}  // namespace vocabpipe
