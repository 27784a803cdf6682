// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// y = gamma * z + beta with z = (x - mean) * inverse_std, per row;
/// inverse_std = 1 / sqrt(variance + epsilon), the variance being divided by h.
/// x, y (N, h); gamma, beta (1, h); statistics (N, 2) fp32: mean, inverse_std.
void layer_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, ConstTensor beta,
                        float epsilon, Tensor y, Tensor statistics);

/// dx = inverse_std * (g - mean_h(g) - z * mean_h(g * z)) + residual with g = dy * gamma.
/// dy, x, dx (N, h); residual (N, h) is the gradient that arrives around the layer, or empty;
/// dx may alias residual or dy.
void layer_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                               ConstTensor statistics, ConstTensor residual, Tensor dx);

/// dgamma = sum over rows of dy * z, dbeta = sum over rows of dy; added to what is there if
/// `accumulate`. dgamma, dbeta (1, h) fp32.
void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                                Tensor dgamma, Tensor dbeta, bool accumulate);

/// Both at once, from one read of dy and x, with the bits of the two alone. dx may alias residual
/// or dy.
void layer_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                         ConstTensor statistics, ConstTensor residual, Tensor dx, Tensor dgamma,
                         Tensor dbeta, bool accumulate);

}  // namespace vocabpipe::kernels::cuda
