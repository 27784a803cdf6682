// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// y = x w^T + bias for one row of x: y_j = dot(x, w_j) + bias_j, as fast as w is read. x (1, in),
/// w (out, in) of x's type, bias (1, out) or empty, y (1, out); types as in gemm(). The bits of y_j
/// depend on x, w_j and bias_j only: neither on the number of threads nor on neighbouring rows of
/// w, which matrix products do not promise for a single row.
void row_product(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y);

}  // namespace vocabpipe::kernels::host
