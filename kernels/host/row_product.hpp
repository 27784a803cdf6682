// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// y = x w^T + bias for a few rows of x: y_nj = dot(x_n, w_j) + bias_j, for one row as fast as w is
/// read, which is read once for all of them. x (n, in), w (out, in) of x's type, bias (1, out) or
/// empty, y (n, out); types as in gemm(). The bits of y_nj depend on x_n, w_j and bias_j only:
/// neither on the number of threads nor on neighbouring rows of x and w, which matrix products do
/// not promise for a few rows.
void row_product(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y);

}  // namespace vocabpipe::kernels::host
