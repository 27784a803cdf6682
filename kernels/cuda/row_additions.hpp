// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// to[ids[n] - first_row] += factors[n, 0] * from[n] for all ids that `to` has a row for, in the
/// order n = 0 .. N-1, so that bits do not depend on scheduling. N ids; from (N, h), fp32 or bf16;
/// to (v, h) fp32; factors (N, 1) fp32, or empty: 1. If `scaled` (N, h) of from's type is given,
/// the same read of `from` also computes scaled[n] = scales[n, 0] * from[n] for all n, scales (N,
/// 1) fp32. Uses 16 N bytes of the lane's workspace and the memory of CUB's radix sort (at most as
/// much again for large N); UsageError where the workspace is too small. Does nothing where `to` is
/// empty.
void add_rows_in_order(CallSite ctx, std::span<const int32_t> ids, int64_t first_row,
                       ConstTensor from, ConstTensor factors, Tensor to, ConstTensor scales = {},
                       Tensor scaled = {});

}  // namespace vocabpipe::kernels::cuda
