// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention_shape.hpp"
#include "kernels/rms_norm_options.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// RMSNorm of every head of q with gamma_q and of k with gamma_k, each over its head_size; v stays
/// (Qwen 3). qkv, out (N, qkv_columns); gamma_q, gamma_k (1, head_size); statistics (N, heads +
/// kv_heads) fp32: inverse_rms of q's heads, then k's. out does not alias qkv.
void head_norm_forward(Context& ctx, ConstTensor qkv, ConstTensor gamma_q, ConstTensor gamma_k,
                       const RmsNormOptions& options, const AttentionShape& shape, Tensor out,
                       Tensor statistics);

/// The gradient of q, k, v before the norm from `dout`, that after it; v's is copied. dqkv does not
/// alias dout.
void head_norm_backward_input(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor gamma_q,
                              ConstTensor gamma_k, const RmsNormOptions& options,
                              ConstTensor statistics, const AttentionShape& shape, Tensor dqkv);

/// dgamma_q, dgamma_k (1, head_size) fp32: sums over tokens and heads; added to what is there if
/// `accumulate`.
void head_norm_backward_weight(Context& ctx, ConstTensor dout, ConstTensor qkv,
                               ConstTensor statistics, const AttentionShape& shape, Tensor dgamma_q,
                               Tensor dgamma_k, bool accumulate);

}  // namespace vocabpipe::kernels::cuda
