// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// sums[j] = sum over rows of x[., j] [+ sums[j]], in an order that depends on the shape and the
/// number of multiprocessors only. x (N, cols), sums (1, cols) fp32.
void sum_columns(CallSite ctx, ConstTensor x, Tensor sums, bool accumulate);

}  // namespace vocabpipe::kernels::cuda
