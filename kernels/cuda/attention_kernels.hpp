// SPDX-License-Identifier: Apache-2.0
// Attention by our own fused kernels: one launch forward, three backward, nothing of shape [s, s].
// What they compute is written in kernels/cuda/attention.hpp, whose operators check the arguments
// and choose between these and cuDNN. Any head size; heads of up to 64 (fp32) or 128 (bf16)
// elements are read once, a wider one is cut into pieces, each of which computes the scores anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention_shape.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

void attention_forward(Context& ctx, ConstTensor qkv, const AttentionShape& shape,
                       std::span<const int32_t> first_visible, Tensor out, Tensor log_sum_exp);

/// Of attention_backward(): dout out of every token and query head, fp32.
[[nodiscard]] int64_t attention_backward_bytes(const AttentionShape& shape);

void attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                        ConstTensor log_sum_exp, const AttentionShape& shape,
                        std::span<const int32_t> first_visible, Tensor dqkv,
                        std::span<std::byte> workspace);

}  // namespace vocabpipe::kernels::cuda
