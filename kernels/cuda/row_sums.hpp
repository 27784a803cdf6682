// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// The sum over n of g[n] values[n, :] in double, in an order that depends on the shape only; a
/// token with a negative label counts as g = 0, and g is 1 everywhere if `g` and `labels` are
/// empty. values (N, h) fp32 or bf16. The h doubles are in the lane's workspace until the next
/// operator that uses it.
[[nodiscard]] const double* sum_rows(CallSite ctx, ConstTensor values,
                                     std::span<const int32_t> labels, std::span<const float> g);

}  // namespace vocabpipe::kernels::cuda
