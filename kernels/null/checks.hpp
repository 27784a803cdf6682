// SPDX-License-Identifier: Apache-2.0
// The checks of arguments that all devices share, by operator: check(names::NAME(), arguments...).
#pragma once

#include <concepts>
#include <iterator>

#include "kernels/attention_checks.hpp"
#include "kernels/distillation_checks.hpp"
#include "kernels/embedding_checks.hpp"
#include "kernels/expert_checks.hpp"
#include "kernels/fold_checks.hpp"
#include "kernels/norm_checks.hpp"
#include "kernels/null/operators.hpp"
#include "kernels/row_checks.hpp"
#include "kernels/row_loss_checks.hpp"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::null {

/// Operators that have a check() below. If the signature of one changes, it no longer compiles.
template <typename Name>
concept HasSharedChecks = std::same_as<Name, names::layer_norm_forward> ||
    std::same_as<Name, names::layer_norm_backward_input> ||
    std::same_as<Name, names::layer_norm_backward_weight> ||
    std::same_as<Name, names::layer_norm_backward> || std::same_as<Name, names::rms_norm_forward> ||
    std::same_as<Name, names::rms_norm_backward_input> ||
    std::same_as<Name, names::rms_norm_sums> ||
    std::same_as<Name, names::rms_norm_backward_weight> ||
    std::same_as<Name, names::rms_norm_backward> || std::same_as<Name, names::head_norm_forward> ||
    std::same_as<Name, names::head_norm_backward_input> ||
    std::same_as<Name, names::head_norm_backward_weight> ||
    std::same_as<Name, names::add_positions> || std::same_as<Name, names::rotary_forward> ||
    std::same_as<Name, names::rotary_backward> ||
    std::same_as<Name, names::causal_attention_forward> ||
    std::same_as<Name, names::causal_attention_backward> ||
    std::same_as<Name, names::attention_sinks_forward> ||
    std::same_as<Name, names::attention_sinks_backward> ||
    std::same_as<Name, names::cached_attention_forward> ||
    std::same_as<Name, names::logits_forward> || std::same_as<Name, names::fold_partials> ||
    std::same_as<Name, names::column_sums> || std::same_as<Name, names::router_forward> ||
    std::same_as<Name, names::router_backward> || std::same_as<Name, names::sum_routing> ||
    std::same_as<Name, names::sort_by_expert> || std::same_as<Name, names::gather_rows> ||
    std::same_as<Name, names::combine_rows> || std::same_as<Name, names::combine_parts> ||
    std::same_as<Name, names::combine_backward_weights> || std::same_as<Name, names::scale_rows> ||
    std::same_as<Name, names::grouped_linear_forward> ||
    std::same_as<Name, names::grouped_linear_backward_input> ||
    std::same_as<Name, names::grouped_linear_backward_weight> ||
    std::same_as<Name, names::mean_rows> || std::same_as<Name, names::spread_rows> ||
    std::same_as<Name, names::columns_to_rows> ||
    std::same_as<Name, names::cross_entropy_forward> ||
    std::same_as<Name, names::cross_entropy_backward> ||
    std::same_as<Name, names::squared_error_forward> ||
    std::same_as<Name, names::squared_error_backward> ||
    std::same_as<Name, names::add_weighted_losses> || std::same_as<Name, names::vocabulary_score> ||
    std::same_as<Name, names::combine_statistics> || std::same_as<Name, names::label_ranks> ||
    std::same_as<Name, names::weigh_by_entropy> || std::same_as<Name, names::policy_loss> ||
    std::same_as<Name, names::listed_logits> || std::same_as<Name, names::distillation_loss> ||
    std::same_as<Name, names::listed_input_gradient> ||
    std::same_as<Name, names::listed_weight_gradient> ||
    std::same_as<Name, names::vocabulary_input_gradient> ||
    std::same_as<Name, names::vocabulary_weight_gradient> ||
    std::same_as<Name, names::sum_reports> || std::same_as<Name, names::update_correction_bias>;

/// The others are checked by each device itself.
template <typename Name, typename... Arguments>
requires(!HasSharedChecks<Name>) void check(Name, const Arguments&...) {}

inline void check(names::layer_norm_forward, Context&, ConstTensor x, ConstTensor gamma,
                  ConstTensor beta, float, Tensor y, Tensor statistics) {
    require_norm_forward(x, gamma, {}, y);
    require_norm_weight(beta, x);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
}
inline void check(names::layer_norm_backward_input, Context&, ConstTensor dy, ConstTensor x,
                  ConstTensor gamma, ConstTensor statistics, ConstTensor residual, Tensor dx) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
}
inline void check(names::layer_norm_backward_weight, Context&, ConstTensor dy, ConstTensor x,
                  ConstTensor statistics, Tensor dgamma, Tensor dbeta, bool) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_backward_weight(dy, x, dbeta);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
}
inline void check(names::layer_norm_backward, Context&, ConstTensor dy, ConstTensor x,
                  ConstTensor gamma, ConstTensor statistics, ConstTensor residual, Tensor dx,
                  Tensor dgamma, Tensor dbeta, bool) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_backward_weight(dy, x, dbeta);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
}
inline void check(names::rms_norm_forward, Context&, ConstTensor x, ConstTensor gamma,
                  const RmsNormOptions& options, ConstTensor residual, Tensor y,
                  Tensor statistics) {
    require_norm_forward(x, gamma, residual, y);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    require_norm_sums(options, x);
}
inline void check(names::rms_norm_backward_input, Context&, ConstTensor dy, ConstTensor x,
                  ConstTensor gamma, const RmsNormOptions& options, ConstTensor statistics,
                  ConstTensor residual, Tensor dx) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    require_norm_sums(options, x);
}
inline void check(names::rms_norm_sums, Context&, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                  const RmsNormOptions&, ConstTensor statistics, Tensor sums) {
    require_norm_sums(dy, x, gamma, statistics, sums);
}
inline void check(names::rms_norm_backward_weight, Context&, ConstTensor dy, ConstTensor x,
                  ConstTensor statistics, Tensor dgamma, bool) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
}
inline void check(names::rms_norm_backward, Context&, ConstTensor dy, ConstTensor x,
                  ConstTensor gamma, const RmsNormOptions& options, ConstTensor statistics,
                  ConstTensor residual, Tensor dx, Tensor dgamma, bool) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    require_norm_sums(options, x);
}
inline void check(names::head_norm_forward, Context&, ConstTensor qkv, ConstTensor gamma_q,
                  ConstTensor gamma_k, const RmsNormOptions&, const AttentionShape& shape,
                  Tensor out, Tensor statistics) {
    require_head_norm(qkv, out, statistics, shape);
    require_head_gammas(gamma_q, gamma_k, shape, qkv.dtype);
}
inline void check(names::head_norm_backward_input, Context&, ConstTensor dout, ConstTensor qkv,
                  ConstTensor gamma_q, ConstTensor gamma_k, const RmsNormOptions&,
                  ConstTensor statistics, const AttentionShape& shape, Tensor dqkv) {
    require_head_norm(qkv, dout, statistics, shape);
    require_head_norm(qkv, dqkv, statistics, shape);
    require_head_gammas(gamma_q, gamma_k, shape, qkv.dtype);
}
inline void check(names::head_norm_backward_weight, Context&, ConstTensor dout, ConstTensor qkv,
                  ConstTensor statistics, const AttentionShape& shape, Tensor dgamma_q,
                  Tensor dgamma_k, bool) {
    require_head_norm(qkv, dout, statistics, shape);
    require_head_gammas(dgamma_q, dgamma_k, shape, DType::fp32);
}
inline void check(names::add_positions, Context&, ConstTensor x, ConstTensor wpe,
                  int64_t seq_length, std::span<const int32_t> positions, Tensor y) {
    require_add_positions(x, wpe, seq_length, positions, y);
}
inline void check(names::rotary_forward, Context&, ConstTensor table, const AttentionShape& shape,
                  Tensor qkv) {
    require_rotary(table, shape, qkv);
}
inline void check(names::rotary_backward, Context&, ConstTensor table, const AttentionShape& shape,
                  Tensor dqkv) {
    require_rotary(table, shape, dqkv);
}
inline void check(names::causal_attention_forward, Context&, ConstTensor q, ConstTensor kv,
                  AttentionShape shape, std::span<const int32_t> first_visible, Tensor out,
                  Tensor log_sum_exp, std::span<std::byte>) {
    require_attention(q, kv, shape, first_visible, out, log_sum_exp);
}
inline void check(names::causal_attention_backward, Context&, ConstTensor dout, ConstTensor q,
                  ConstTensor kv, ConstTensor out, ConstTensor log_sum_exp, AttentionShape shape,
                  std::span<const int32_t> first_visible, Tensor dq, Tensor dkv,
                  std::span<std::byte>) {
    require_attention(q, kv, shape, first_visible, out, log_sum_exp);
    require_attention_gradients(dout, q, kv, out, dq, dkv);
}
inline void check(names::attention_sinks_forward, Context&, ConstTensor sinks,
                  const AttentionShape& shape, Tensor out, Tensor log_sum_exp) {
    require_attention_sinks(sinks, shape, out, log_sum_exp);
}
inline void check(names::attention_sinks_backward, Context&, ConstTensor sinks, ConstTensor dout,
                  ConstTensor out, ConstTensor log_sum_exp, const AttentionShape& shape,
                  Tensor dscores) {
    require_attention_sinks(sinks, shape, out, log_sum_exp);
    require_sink_gradients(dout, out, dscores, log_sum_exp);
}
inline void check(names::cached_attention_forward, Context&, ConstTensor q, ConstTensor kv,
                  ConstTensor sinks, const AttentionShape& shape, Tensor out) {
    require_cached_attention(q, kv, sinks, shape, out);
}
inline void check(names::logits_forward, Context&, ConstTensor x, ConstTensor w, float softcap,
                  Tensor z) {
    require_logits(x, w, softcap, z);
}
inline void check(names::column_sums, Context&, ConstTensor x, Tensor sums, bool) {
    require_column_sums(x, sums);
}
inline void check(names::fold_partials, Context&, ConstTensor partials, int64_t count,
                  ConstTensor bias, ConstTensor residual, Tensor out) {
    check_fold_partials(partials, count, bias, residual, out);
}
inline void check(names::router_forward, Context&, ConstTensor logits, ConstTensor bias,
                  const RouterOptions& options, std::span<int32_t> choice, Tensor weights,
                  Tensor load, Tensor score_sums, Tensor log_z) {
    require_router(logits, options, choice, weights, load, log_z);
    require_router_forward(logits, bias, score_sums);
}
inline void check(names::router_backward, Context&, ConstTensor logits, ConstTensor log_z,
                  std::span<const int32_t> choice, ConstTensor dweights, ConstTensor load,
                  const RouterOptions& options, const RouterLossScales&, Tensor) {
    require_router(logits, options, choice, dweights, load, log_z);
}
inline void check(names::sum_routing, Context&, ConstTensor load, ConstTensor score_sums,
                  ConstTensor log_z, int64_t, std::span<double> sums, bool) {
    require_sum_routing(load, score_sums, log_z, sums);
}
inline void check(names::sort_by_expert, Context&, std::span<const int32_t> choice,
                  std::span<int32_t> row_begin, std::span<int32_t> row_of_slot,
                  std::span<int32_t> slot_of_row) {
    require_expert_order(choice, row_begin, row_of_slot, slot_of_row);
}
inline void check(names::gather_rows, Context&, ConstTensor x, std::span<const int32_t> slot_of_row,
                  int64_t per_token, ConstTensor weights, Tensor y) {
    require_gather_rows(x, slot_of_row, per_token, weights, y);
}
inline void check(names::combine_rows, Context&, ConstTensor rows,
                  std::span<const int32_t> row_of_slot, int64_t per_token, ConstTensor weights,
                  ConstTensor residual, Tensor y) {
    require_combine_rows(rows, row_of_slot, per_token, weights, residual, y);
}
inline void check(names::combine_parts, Context&, std::span<const ConstTensor> parts,
                  std::span<const int32_t> row_of_slot, ConstTensor residual, Tensor y) {
    require_combine_parts(parts, row_of_slot, residual, y);
}
inline void check(names::combine_backward_weights, Context&, ConstTensor dy, ConstTensor rows,
                  std::span<const int32_t> slot_of_row, Tensor dweights) {
    require_row_products(dy, rows, slot_of_row, dweights);
}
inline void check(names::scale_rows, Context&, ConstTensor x, std::span<const int32_t> slot_of_row,
                  ConstTensor weights, Tensor y) {
    require_scale_rows(x, slot_of_row, weights, y);
}
inline void check(names::grouped_linear_forward, Context&, ConstTensor x, ConstTensor w,
                  std::span<const RowRange> rows, int64_t first_column, Tensor y) {
    require_grouped_columns(x, w, y, rows, first_column);
}
inline void check(names::grouped_linear_backward_input, Context&, ConstTensor dy, ConstTensor w,
                  std::span<const RowRange> rows, Tensor dx) {
    require_grouped_linear(dx, w, dy, rows);
}
inline void check(names::grouped_linear_backward_weight, Context&, ConstTensor dy, ConstTensor x,
                  std::span<const RowRange> rows, Tensor dw, bool) {
    require_grouped_linear(x, dw, dy, rows);
}
inline void check(names::mean_rows, Context&, ConstTensor x, int64_t count, Tensor y) {
    require_row_groups(x, count, y);
}
inline void check(names::spread_rows, Context&, ConstTensor dy, int64_t count, Tensor dx) {
    require_row_groups(dx, count, dy);
}
inline void check(names::columns_to_rows, Context&, std::span<const float> columns, int64_t tokens,
                  Tensor y) {
    require_columns_to_rows(columns, tokens, y);
}
inline void check(names::cross_entropy_forward, Context&, ConstTensor logits,
                  std::span<const int32_t> labels, int64_t stride, Tensor losses) {
    require_cross_entropy_forward(logits, labels, stride, losses);
}
inline void check(names::cross_entropy_backward, Context&, ConstTensor logits,
                  std::span<const int32_t> labels, std::span<const float> weights, int64_t stride,
                  Tensor dlogits) {
    require_cross_entropy_backward(logits, labels, weights, stride, dlogits);
}
inline void check(names::squared_error_forward, Context&, ConstTensor x,
                  std::span<const float> targets, int64_t stride, Tensor losses) {
    require_squared_error_forward(x, targets, stride, losses);
}
inline void check(names::squared_error_backward, Context&, ConstTensor x,
                  std::span<const float> targets, std::span<const float> weights, int64_t stride,
                  Tensor dx) {
    require_squared_error_backward(x, targets, weights, stride, dx);
}
inline void check(names::add_weighted_losses, Context&, ConstTensor losses,
                  std::span<const float> weights, int64_t stride, double*) {
    require_weighted_losses(losses, weights, stride);
}
inline void check(names::vocabulary_score, Context&, ConstTensor x, ConstTensor w,
                  std::span<const int32_t> labels, const VocabularyShard& shard,
                  const LossOptions& options, Tensor exp_logits, Tensor statistics, Tensor logits,
                  std::span<std::byte>) {
    require_score(x, w, std::ssize(labels), shard, options, exp_logits, statistics, logits);
    require_options(options);
}
inline void check(names::combine_statistics, Context&, ConstTensor by_shard,
                  std::span<const int32_t> labels, const TokenGradients& gradients,
                  const VocabularyShard&, int my_shard, const LossOptions& options, Tensor factors,
                  std::span<float> records) {
    require_combination(by_shard, std::ssize(labels), gradients, my_shard, options, factors,
                        records);
    require_options(options);
}
inline void check(names::label_ranks, Context&, ConstTensor logits, ConstTensor by_shard,
                  std::span<const int32_t> labels, const VocabularyShard& shard,
                  std::span<float> counts) {
    require_label_ranks(logits, by_shard, labels, shard, counts);
}
inline void check(names::weigh_by_entropy, Context&, const LossOptions& options, Tensor exp_logits,
                  Tensor factors) {
    require_weigh_by_entropy(options, exp_logits, factors);
}
inline void check(names::policy_loss, Context&, const PolicyLossOptions& options,
                  std::span<const int32_t> labels, std::span<const float> g,
                  std::span<const float> logprob, std::span<const float> entropy,
                  std::span<const float> columns, std::span<float> loss, std::span<float> gradient,
                  std::span<float> entropy_gradient) {
    require_policy_loss(options, labels, g, logprob, entropy, columns, loss, gradient,
                        entropy_gradient);
}
inline void check(names::listed_logits, Context&, ConstTensor x, ConstTensor w, ConstTensor ids,
                  const VocabularyShard& shard, const LossOptions&, Tensor logits) {
    require_listed_logits(x, w, ids, shard, logits);
}
inline void check(names::distillation_loss, Context&, const DistillationOptions& options,
                  const LossOptions&, ConstTensor by_shard, std::span<const int32_t> labels,
                  std::span<const float> g, std::span<const float> logprob,
                  std::span<const float> log_z, ConstTensor teacher, std::span<float> loss,
                  std::span<float> gradient, Tensor slopes) {
    require_distillation_loss(options, by_shard, labels, g, logprob, log_z, teacher, loss, gradient,
                              slopes);
}
inline void check(names::listed_input_gradient, Context&, ConstTensor slopes, ConstTensor w,
                  std::span<const int32_t> labels, ConstTensor ids, const VocabularyShard& shard,
                  Tensor u) {
    require_listed_gradient(slopes, labels, ids);
    require_listed_rows(u, w, std::ssize(labels), shard);
}
inline void check(names::listed_weight_gradient, Context&, ConstTensor slopes, ConstTensor x,
                  std::span<const int32_t> labels, ConstTensor ids, const VocabularyShard& shard,
                  Tensor dw) {
    require_listed_gradient(slopes, labels, ids);
    require_listed_rows(dw, x, shard.rows, {.rows = std::ssize(labels)});
}
inline void check(names::vocabulary_input_gradient, Context&, Tensor u, ConstTensor factors,
                  ConstTensor w, std::span<const int32_t> labels, std::span<const float>,
                  const VocabularyShard& shard, const LossOptions&, std::span<std::byte>) {
    require_input_gradient(u, factors, w, std::ssize(labels), shard);
}
inline void check(names::vocabulary_weight_gradient, Context&, ConstTensor x,
                  ConstTensor exp_logits, ConstTensor factors, std::span<const int32_t> labels,
                  std::span<const float>, const VocabularyShard& shard, const LossOptions&,
                  Tensor dw, bool, std::span<std::byte>) {
    require_weight_gradient(x, exp_logits, factors, std::ssize(labels), shard, dw);
}
inline void check(names::sum_reports, Context&, std::span<const double> reports, int64_t entries,
                  int64_t first, std::span<double> sums) {
    require_sum_reports(reports, entries, first, sums);
}
inline void check(names::update_correction_bias, Context&, std::span<const double> loads, float,
                  const StepScalars*, Tensor bias) {
    require_correction_bias(loads, bias);
}

}  // namespace vocabpipe::kernels::null
