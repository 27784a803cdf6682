// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// Packs log_sum_exp (N, heads), strided, in cuDNN's order (sequence, head, token), dense; there
/// are N / seq_length sequences.
void pack_statistics(CallSite ctx, ConstTensor log_sum_exp, int64_t seq_length, float* packed);
void unpack_statistics(CallSite ctx, const float* packed, int64_t seq_length, Tensor log_sum_exp);

}  // namespace vocabpipe::kernels::cuda
