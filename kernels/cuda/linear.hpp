// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// y = x w^T + bias.  x (N, in), w (out, in), bias (1, out) or empty, y (N, out).
/// y may be fp32 or bf16 whatever the type of x and w.
void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y);

/// y = x w^T + bias + residual. residual (N, out) may be y itself. One product where the types of
/// residual and y agree; else the product goes through `scratch` (N, out).
void linear_add_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                        ConstTensor residual, Tensor scratch, Tensor y);

/// before = x w^T + bias, y = gelu(before); before and y (N, out). In bf16 one product of cuBLASLt,
/// which takes GELU of the unrounded sum; in fp32 GELU is our own, as accurate as the host's.
void linear_gelu_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                         Tensor before, Tensor y);

/// dx = dy w.  dy (N, out), w (out, in), dx (N, in), fp32 or bf16.
void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, Tensor dx);

/// dx = gelu'(before) * (dy w); before of dx's shape.
void linear_gelu_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, ConstTensor before,
                                Tensor dx);

/// dw = dy^T x, dbias = column sums of dy; added to what is there if `accumulate`.
/// dy (N, out), x (N, in), dw (out, in) fp32, dbias (1, out) fp32 or empty.
void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw, Tensor dbias,
                            bool accumulate);

}  // namespace vocabpipe::kernels::cuda
