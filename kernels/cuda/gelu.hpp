// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3): GPT-2's "gelu_new". Any equal shapes;
/// y may alias x.
void gelu_forward(Context& ctx, ConstTensor x, Tensor y);

/// dx = dy * gelu'(x). dx may alias dy or x.
void gelu_backward(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dx);

}  // namespace vocabpipe::kernels::cuda
