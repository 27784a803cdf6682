// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention_shape.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// Rotates every head of q and k in place by its token's position t (Su et al. 2021), in the
/// half-split form of Hugging Face's files: with c, s of t and i < d/2,
///   (x_i, x_{i + d/2}) becomes (x_i c_i - x_{i + d/2} s_i, x_{i + d/2} c_i + x_i s_i).
/// qkv (N, qkv_columns); table (seq_length or more, d) fp32: row t is c (d/2), then s (d/2).
void rotary_forward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor qkv);

/// The gradient before the rotation from the one after it, in place: the transposed rotation.
void rotary_backward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor dqkv);

}  // namespace vocabpipe::kernels::cuda
