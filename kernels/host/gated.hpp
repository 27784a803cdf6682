// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/activation.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// y = activation(gate) * up (Shazeer 2020: SwiGLU, GeGLU). gate_up (N, 2 f): gate | up; y (N, f).
void gated_forward(Context& ctx, Activation activation, ConstTensor gate_up, Tensor y);

/// dgate = dy * up * activation'(gate), dup = dy * activation(gate). dy (N, f), dgate_up (N, 2 f).
void gated_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor gate_up,
                    Tensor dgate_up);

}  // namespace vocabpipe::kernels::host
