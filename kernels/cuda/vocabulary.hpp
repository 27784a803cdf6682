// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/reference/vocabulary.hpp"

/// The output layer of one vocabulary shard on a GPU: what kernels/host/vocabulary.hpp says, with
/// its shapes and numbers, on device memory. Labels are not checked here: whoever uploads them
/// calls check_labels().
///
/// Bytes of a microbatch in flight, N tokens, v rows of the shard, h columns, bf16 (fp32):
///
///     S to T      exp_logits                      2 N v (4 N v)
///                 statistics, factors            24 N
///                 u                              4 N h, from S on with one barrier, else within T
///     within S    workspace: a chunk of logits   N v / 2, but not below 32 MiB
///     within T    workspace: c X                 2 N h (4 N h)
///
/// So S and T take at most 1.25 times the bf16 exp_logits where that is 128 MiB or more and h <=
/// v / 4, next to the lane's 32 MiB that all operators share.
namespace vocabpipe::kernels::cuda {

/// What keeps the product efficient. A smaller workspace, down to 1 KiB per token, works as well:
/// more chunks, other bits.
[[nodiscard]] int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows, DType type);

/// S. The logits exist in fp32, a chunk of columns for all tokens at a time, in `workspace`.
///
/// m is a reference point near max_j z_j: the maximum over the first 2048 columns, raised only when
/// a later logit exceeds it by more than 30; then what was stored is scaled.
void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w, std::span<const int32_t> labels,
                      const VocabularyShard& shard, const LossOptions& options, Tensor exp_logits,
                      Tensor statistics, std::span<std::byte> workspace);

void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w, Tensor u);

/// Runs on the lane that combines; no workspace.
void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                        std::span<const float> g, const VocabularyShard& mine, int my_shard,
                        const LossOptions& options, Tensor factors, std::span<float> loss);

/// 0: the sum over W's rows, needed with label smoothing only, lies in the lane's workspace.
[[nodiscard]] int64_t vocabulary_input_gradient_workspace_bytes(int64_t hidden);

void vocabulary_input_gradient(Context& ctx, Tensor u, ConstTensor factors, ConstTensor w,
                               std::span<const int32_t> labels, std::span<const float> g,
                               const VocabularyShard& shard, const LossOptions& options,
                               std::span<std::byte> workspace);

[[nodiscard]] int64_t vocabulary_weight_gradient_workspace_bytes(int64_t tokens, int64_t hidden,
                                                                 DType type);

void vocabulary_weight_gradient(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                ConstTensor factors, std::span<const int32_t> labels,
                                std::span<const float> g, const VocabularyShard& shard,
                                const LossOptions& options, Tensor dw, bool accumulate,
                                std::span<std::byte> workspace);

}  // namespace vocabpipe::kernels::cuda
