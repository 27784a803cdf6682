// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/rms_norm_options.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// y = residual + (gamma + weight_offset) * z with z = x * inverse_rms, per row;
/// inverse_rms = 1 / sqrt(mean_h(x^2) + epsilon) (Zhang and Sennrich 2019).
/// x, y (N, h); gamma (1, h); residual (N, h) or empty; statistics (N, 1) fp32: inverse_rms.
/// y may alias residual.
void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, const RmsNormOptions& options,
                      ConstTensor residual, Tensor y, Tensor statistics);

/// dx = inverse_rms * (g - z * mean_h(g * z)) + residual with g = dy * (gamma + weight_offset).
/// dy, x, dx (N, h); residual (N, h) is the gradient that arrives around the layer, or empty;
/// dx may alias residual or dy.
void rms_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                             const RmsNormOptions& options, ConstTensor statistics,
                             ConstTensor residual, Tensor dx);

/// dgamma = sum over rows of dy * z; added to what is there if `accumulate`. dgamma (1, h) fp32.
void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                              Tensor dgamma, bool accumulate);

/// Both: dx, and the gradients of the parameters. The bits of the two operators alone.
void rms_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                       const RmsNormOptions& options, ConstTensor statistics, ConstTensor residual,
                       Tensor dx, Tensor dgamma, bool accumulate);

}  // namespace vocabpipe::kernels::host
