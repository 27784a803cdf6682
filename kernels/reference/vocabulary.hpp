// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/vocabulary.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

/// Plain loops in double arithmetic for every DType, fp64 exp_logits, statistics and factors
/// included: the oracle of the tests. Results are rounded to the type of the tensor they go to.
/// Workspaces are not used and may be empty. The shapes are those of kernels/host/vocabulary.hpp.
namespace vocabpipe::kernels::reference {

[[nodiscard]] int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows, DType type);

/// Here m is exactly max_j z_j.
void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w, std::span<const int32_t> labels,
                      const VocabularyShard& shard, const LossOptions& options, Tensor exp_logits,
                      Tensor statistics, std::span<std::byte> workspace);

void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w, Tensor u);

void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                        std::span<const float> g, const VocabularyShard& mine, int my_shard,
                        const LossOptions& options, Tensor factors, std::span<float> loss);

/// The losses that combine_statistics reports, before they are rounded to float.
void row_losses(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                const VocabularyShard& mine, const LossOptions& options, std::span<double> loss);

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

}  // namespace vocabpipe::kernels::reference
