// SPDX-License-Identifier: Apache-2.0
// Attention by our own fused kernels: one launch forward, three backward, nothing of shape [s, s].
// kernels/cuda/attention.cpp checks the arguments and chooses between these and cuDNN. Any
// sizes of keys and values; heads of up to 64 (fp32) or 128 (bf16) elements are read once, a wider
// one is cut into pieces, each of which computes the scores again. Scores are fp32 and never in
// memory; exp(s_ij - the row's largest score so far) is rounded to the run's type before it
// multiplies v, and so are p and ds in the gradient. Sums are fp32, each in one block of one kernel
// and in one order: dq over keys, dk and dv over the query heads that read the key head, and within
// them over queries, both ascending. Tiles of queries begin at the first query.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

void attention_forward(CallSite ctx, ConstTensor q, ConstTensor kv, const AttentionShape& shape,
                       std::span<const int32_t> first_visible, Tensor out, Tensor log_sum_exp);

/// Bytes of attention_backward()'s workspace: dout . out of every query and its heads, fp32.
[[nodiscard]] int64_t attention_backward_bytes(const AttentionShape& shape);

void attention_backward(CallSite ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                        ConstTensor out, ConstTensor log_sum_exp, const AttentionShape& shape,
                        std::span<const int32_t> first_visible, Tensor dq, Tensor dkv,
                        std::span<std::byte> workspace);

}  // namespace vocabpipe::kernels::cuda
