// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::reference {

/// y = x w^T + bias.  x (N, in), w (out, in), bias (1, out) or empty, y (N, out).
/// y may be fp32 or bf16 whatever the type of x and w.
void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y);

/// dx = dy w.  dy (N, out), w (out, in), dx (N, in), fp32 or bf16.
void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, Tensor dx);

/// dw = dy^T x, dbias = column sums of dy; added to what is there if `accumulate`.
/// dy (N, out), x (N, in), dw (out, in) fp32, dbias (1, out) fp32 or empty.
void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw, Tensor dbias,
                            bool accumulate);

}  // namespace vocabpipe::kernels::reference
