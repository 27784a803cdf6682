// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/attention.hpp"

#include "src/model/blocks/exchanged_heads.hpp"
#include "src/model/blocks/gathered_keys.hpp"
#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/panel_exchange.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

LinearOptions qkv_options(const AttentionOptions& options) {
    return {.files = options.qkv,
            .out = {options.shape.query_columns(), options.shape.key_columns(),
                    options.shape.value_columns()},
            .in = options.hidden_size,
            .bias = options.qkv_bias,
            .init_std = options.qkv_init_std,
            .lora = options.lora};
}

LinearOptions proj_options(const AttentionOptions& options) {
    return {.files = options.proj,
            .out = {options.hidden_size},
            .in = options.shape.output_columns(),
            .bias = options.proj_bias,
            .init_std = options.proj_init_std,
            .lora = options.lora};
}

Parameter* next_sinks(const AttentionOptions& options, ParameterSource& parameters) {
    if (options.sinks.empty()) return nullptr;
    return parameters.next({.name = options.sinks,
                            .rows = 1,
                            .cols = options.shape.heads,
                            .init_std = options.sinks_init_std,
                            .cut = TensorCut::columns});
}

/// The heads of one of `ranks` ranks; all have the same number of heads of each kind.
kernels::AttentionShape shape_of_rank(kernels::AttentionShape shape, int ranks) {
    shape.heads /= ranks;
    shape.kv_heads /= ranks;
    return shape;
}

}  // namespace

Attention::Attention(const AttentionOptions& options, ParameterSource& parameters)
    : options_(options),
      shape_(shape_of_rank(options.shape, options.tensor)),
      qkv_(qkv_options(options), parameters),
      qk_norm_(options.qk_norm ? std::optional<QkNorm>(std::in_place, *options.qk_norm,
                                                       options.shape, parameters)
                               : std::nullopt),
      sinks_(next_sinks(options, parameters)),
      proj_(proj_options(options), parameters) {}

Attention::Saved Attention::saved_views(SavedViews& views) const {
    SavedViews all = views.all();
    Saved saved;
    if (qk_norm_) saved.qk_norm = qk_norm_->saved_views(shape_, all);
    saved.qkv = (qk_norm_ ? all.cheap : all.costly).take(shape_.qkv_columns());
    saved.log_sum_exp = all.costly.statistics(shape_.heads);
    saved.heads = all.costly.take(shape_.output_columns());
    return saved;
}

Attention::Gradients Attention::gradient_views(TokenViews& views) const {
    TokenViews all = views.all();
    Gradients gradients{.qkv = all.take(shape_.qkv_columns()), .normed = {}, .sinks = {}};
    if (qk_norm_) gradients.normed = all.take(shape_.qkv_columns());
    if (has_sinks()) gradients.sinks = all.statistics(shape_.heads);
    return gradients;
}

template <typename Use>
auto Attention::with_exchange(const kernels::AttentionShape& shape, const Use& use) const {
    const int wanted = options_.exchange.panels;
    if (options_.exchange.form == ContextForm::a2a) {
        return use(ExchangedHeads{shape, panels_of(shape.kv_heads / options_.context, wanted)});
    }
    // Sequences travel one by one, so that several of them need fewer panels to hide the exchange.
    const auto of_sequence = static_cast<int>(wanted / std::max<int64_t>(shape.sequences, 1));
    return use(GatheredKeys{shape, panels_of(shape.kv_heads, of_sequence)});
}

ScratchSize Attention::scratch(const ScratchFor& use) const {
    const kernels::AttentionShape of = with_sequences(shape_, use.sequences, use.seq_length);
    int64_t workspace = use.context == 1
                            ? use.operators.attention_workspace_bytes(of, use.dtype, use.threads)
                            : with_exchange(of, [&](const auto& exchange) {
                                  return exchange.workspace_bytes(use);
                              });
    if (qk_norm_) workspace = std::max(workspace, qk_norm_->workspace_bytes(use));
    return ScratchSize{.columns = shape_.output_columns(), .workspace = workspace}
        .or_larger(qkv_.scratch(use))
        .or_larger(proj_.scratch(use));
}

void Attention::finish_qkv(const StagePass& pass, const Saved& saved) const {
    if (qk_norm_) {
        qk_norm_->forward(pass, shape(pass), saved.qk_norm.before, saved.qk_norm.statistics,
                          saved.qkv);
    }
    if (options_.rope) {
        pass.op().rotary_forward(
            pass.ctx,
            pass.rotary->of(*options_.rope, pass.microbatch.seq_length, pass.cached.count),
            shape(pass), saved.qkv);
    }
}

void Attention::attend(const StagePass& pass, const Saved& saved) const {
    const kernels::AttentionShape of = shape(pass);
    keep_keys_values(pass, of, saved.qkv);
    if (!pass.context) {
        return vocabpipe::attend(pass, of, saved.qkv, sinks(), saved.heads, saved.log_sum_exp);
    }
    with_exchange(of, [&](const auto& exchange) {
        exchange.forward(pass, saved.qkv, sinks(), saved.heads, saved.log_sum_exp);
    });
}

void Attention::attend_backward(const StagePass& pass, ConstTensor dheads, const Saved& saved,
                                Statistics dsinks, Tensor dqkv) const {
    const kernels::AttentionShape of = shape(pass);
    if (!pass.context) {
        return vocabpipe::attend_backward(pass, of, dheads, saved.qkv, sinks(dsinks), saved.heads,
                                          saved.log_sum_exp, dqkv);
    }
    with_exchange(of, [&](const auto& exchange) {
        exchange.backward(pass, dheads, saved.qkv, sinks(dsinks), saved.heads, saved.log_sum_exp,
                          dqkv);
    });
}

void Attention::sum_sinks(const StagePass& pass, Statistics gradients) const {
    if (pass.context && options_.exchange.form == ContextForm::a2a) {
        return ExchangedHeads::sum_sinks(pass, gradients, sinks_->gradient);
    }
    pass.op().column_sums(pass.ctx, gradients, sinks_->gradient, pass.weight_gradients.accumulate);
}

void Attention::forward(const StagePass& pass, ConstTensor x, const Saved& saved,
                        ConstTensor residual, Tensor out) const {
    const Tensor qkv = qk_norm_ ? saved.qk_norm.before : saved.qkv;
    pass.input.each(
        [&](RowRange rows) { qkv_.forward(pass, rows_of(x, rows), rows_of(qkv, rows)); });
    finish_qkv(pass, saved);
    attend(pass, saved);
    proj_.forward_onto(pass, saved.heads, residual, out);
}

void Attention::recompute(const StagePass& pass, ConstTensor /*x*/, const Saved& saved) const {
    if (qk_norm_) finish_qkv(pass, saved);
}

void Attention::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor /*x*/,
                               const Saved& saved, const Gradients& gradients, Tensor dx) const {
    const kernels::Operators& op = pass.op();
    const Tensor dheads = pass.scratch.columns(shape_.output_columns());
    proj_.backward_input(pass, dy, saved.heads, dheads);
    const Tensor dqkv = qk_norm_ ? gradients.normed : gradients.qkv;
    attend_backward(pass, dheads, saved, gradients.sinks, dqkv);
    if (options_.rope) {
        op.rotary_backward(pass.ctx, pass.rotary->of(*options_.rope, pass.microbatch.seq_length),
                           shape(pass), dqkv);
    }
    if (qk_norm_) {
        qk_norm_->backward_input(pass, shape(pass), dqkv, saved.qk_norm.before,
                                 saved.qk_norm.statistics, gradients.qkv);
    }
    pass.output.each([&](RowRange rows) {
        qkv_.backward_input(pass, rows_of(gradients.qkv, rows), rows_of(dx, rows));
    });
}

void Attention::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                const Saved& saved, const Gradients& gradients) const {
    proj_.backward_weight(pass, dy, saved.heads);
    if (qk_norm_) {
        qk_norm_->backward_weight(pass, shape(pass), gradients.normed, saved.qk_norm.before,
                                  saved.qk_norm.statistics);
    }
    if (has_sinks() && sinks_->gradient) sum_sinks(pass, gradients.sinks);
    qkv_.backward_weight(pass, gradients.qkv, x);
}

BlockWork Attention::work(int64_t seq_length) const {
    const kernels::AttentionShape& all = options_.shape;
    // Norms copy v.
    const int64_t normed = qk_norm_ ? all.qkv_columns() : 0;
    const int64_t shrunk = has_sinks() ? 2 * all.output_columns() : 0;
    const int64_t rotated = options_.rope ? (all.heads + all.kv_heads) * options_.rotary_size : 0;
    return {.products = {qkv_.product(), proj_.product()},
            .heads_flops = heads_flops(all, seq_length),
            .heads = all.heads,
            .query_columns = all.query_columns(),
            .kv_columns = all.key_value_columns(),
            .moved = {.forward = 2 * normed + 2 * rotated + shrunk,
                      .backward = 3 * normed + 2 * rotated + shrunk,
                      .recompute_heads = qk_norm_ ? 2 * normed + 2 * rotated : 0}};
}

}  // namespace vocabpipe
