// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/reference/vocabulary.hpp"

/// The output layer of one vocabulary shard on the host; the method and the signatures are those of
/// kernels/reference/vocabulary.hpp. x, w and exp_logits share one type, fp32 or bf16; everything
/// else is fp32. Tensors may have row strides; a shard without rows is legal everywhere (w,
/// exp_logits and dw then have 0 rows or columns and may be empty views).
///
/// Context::poll() is called between chunks of work, a few milliseconds apart at most.
namespace vocabpipe::kernels::host {

[[nodiscard]] int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows, DType type);

/// S: exp_logits (N, v) = exp(z - m) dz/d(x w) with the label's entry set to 0, and statistics (N,
/// kStatistics). x (N, h), w (v, h), z = x w^T, soft-capped, which is never rounded to bf16 and
/// never exists as a whole. dz/d(x w) = 1 - (z / c)^2, 1 without a cap.
///
/// m is a reference point near max_j z_j: the maximum over the first columns, raised only when a
/// later logit exceeds it by more than 30. So exponentials may exceed 1 (by far less than their
/// type holds), and one pass over the columns suffices; m + log a and m + log e do not depend on m.
/// a sums the exponentials before they are rounded to the type of `exp_logits`, the label's
/// included.
void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w, std::span<const int32_t> labels,
                      const VocabularyShard& shard, const LossOptions& options, Tensor exp_logits,
                      Tensor statistics, std::span<std::byte> workspace);

/// u (N, h) = exp_logits (N, v) times w (v, h).
void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w, Tensor u);

/// The row factors of this shard from the statistics of all K shards, by_shard (K N, kStatistics),
/// shard by shard, folded in this order so that every rank gets the same bits of M, A and loss:
///
///     factors (N, 2): c_n = g_n (1 + 2 z_loss log Z) exp(m - M) / A
///                     d_n = c_n exp(z_y - m) - g_n (1 - eps) where `mine` owns the label, else 0;
///                     with soft-capped logits times 1 - (z_y / c)^2
///     loss (N): loss_n, not weighted by g; 0 for ignored labels; may be empty
///
/// g_n is d(total loss) / d(loss_n). In evaluation `factors` is empty: only the losses are formed.
void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                        std::span<const float> g, const VocabularyShard& mine, int my_shard,
                        const LossOptions& options, Tensor factors, std::span<float> loss);

/// Needed with label smoothing only.
[[nodiscard]] int64_t vocabulary_input_gradient_workspace_bytes(int64_t hidden);

/// This shard's addend of dX, in place: u_n = c_n u_n + d_n W_{y_n} - g_n eps/V sum_j W_j.
void vocabulary_input_gradient(Context& ctx, Tensor u, ConstTensor factors, ConstTensor w,
                               std::span<const int32_t> labels, std::span<const float> g,
                               const VocabularyShard& shard, const LossOptions& options,
                               std::span<std::byte> workspace);

[[nodiscard]] int64_t vocabulary_weight_gradient_workspace_bytes(int64_t tokens, int64_t hidden,
                                                                 DType type);

/// dw (v, h) = or += exp_logits^T (c x), with c x rounded to the type of x; then every row -= eps/V
/// sum_n g_n x_n; then row y_n += d_n x_n, in ascending order of n.
void vocabulary_weight_gradient(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                ConstTensor factors, std::span<const int32_t> labels,
                                std::span<const float> g, const VocabularyShard& shard,
                                const LossOptions& options, Tensor dw, bool accumulate,
                                std::span<std::byte> workspace);

}  // namespace vocabpipe::kernels::host
