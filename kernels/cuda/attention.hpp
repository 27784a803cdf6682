// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention_shape.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// Bytes of `workspace` for tensors of `type`; `threads` does not matter: 4 for each token and
/// query head, or what cuDNN (kernels/cuda/attention_cudnn.hpp) may need, if that is more.
[[nodiscard]] int64_t attention_workspace_bytes(AttentionShape shape, DType type, int threads);

/// Per sequence and query head, with q, k, v (s, head_size), over the keys j that query i sees:
///   out_i = sum_j p_ij v_j,  p_ij = exp(s_ij - log_sum_exp_i),  s_ij = scale q_i k_j, soft-capped.
/// qkv (N, qkv_columns): columns q | k | v, each with the heads side by side;
/// out (N, query_columns); log_sum_exp (N, heads) fp32, natural logarithm of the sum over the
/// scores.
/// first_visible (N), of the device: keys of the sequence before this one a query does not see,
/// whatever the shape says; from 0 to its own index, which nobody checks. Empty: 0 for all. cuDNN
/// is left out with them. Scores are fp32 and never in memory; exp(s_ij - the row's largest score
/// so far) has the run's type where it multiplies v. `workspace` is 64-byte aligned and holds
/// nothing between calls. Sequences of at most 2^30 tokens.
void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
                              std::span<const int32_t> first_visible, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte> workspace);

/// dqkv (N, qkv_columns) = gradient of causal_attention_forward; p is recomputed from qkv and
/// log_sum_exp:
///   dv_j = sum_i p_ij dout_i,  ds_ij = p_ij (dout_i v_j - dout_i out_i) d s_ij / d (q_i k_j),
///   dq_i = sum_j ds_ij k_j,  dk_j = sum_i ds_ij q_i.
/// p and ds have the run's type. Sums are fp32, each in one block of one kernel and in one order:
/// dq over keys, dk and dv over the query heads that read the key head, and within them over
/// queries, both ascending.
void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                               ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dqkv,
                               std::span<std::byte> workspace);

}  // namespace vocabpipe::kernels::cuda
