// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe::kernels {

/// One step of AdamW with decoupled weight decay, as torch.optim.AdamW does it:
///
///     g  = gradient_scale gradient
///     p -= lr weight_decay p
///     m  = beta1 m + (1 - beta1) g          (exp_avg)
///     v  = beta2 v + (1 - beta2) g^2        (exp_avg_sq)
///     p -= lr (m / bias_correction1) / (sqrt(v / bias_correction2) + epsilon)
struct AdamWOptions {
    float lr = 1e-3F;
    float beta1 = 0.9F;
    float beta2 = 0.999F;
    float epsilon = 1e-8F;
    float weight_decay = 0.01F;
    float gradient_scale = 1;    ///< clip factor times whatever else scales the gradient
    float bias_correction1 = 1;  ///< 1 - beta1^t at step t = 1, 2, ...
    float bias_correction2 = 1;  ///< 1 - beta2^t
};

}  // namespace vocabpipe::kernels
