// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels {

/// Numbers of one step that change from step to step or are known only at its end. They live in the
/// memory of the device, so that no pass of a step waits for the host.
struct StepScalars {
    // Given before the step.
    float lr = 0;
    float bias_correction1 = 1;  ///< 1 - beta1^t at step t = 1, 2, ...
    float bias_correction2 = 1;  ///< 1 - beta2^t
    float clip_grad = 0;         ///< largest global gradient norm; 0: no clipping
    int64_t counted_tokens = 0;  ///< 0: no update
    double stop_requested = 0;   ///< what this rank adds to `stops`; 0: nothing
    // Found by finish_report().
    double loss = 0;       ///< mean over the counted tokens
    double grad_norm = 0;  ///< global, before clipping
    double stops = 0;      ///< sum of the ranks' requests to stop
    float gradient_scale = 1;
    int32_t update = 0;  ///< 0: no counted token, or loss or norm not finite; nothing changes
};

/// One parameter as the optimizer sees it: equally long; `weight` is empty or a dense bf16 copy of
/// `master` to refresh.
struct AdamWTensor {
    std::span<float> master;
    std::span<const float> gradient;
    std::span<float> exp_avg, exp_avg_sq;
    Tensor weight;
    float weight_decay = 0;
    float lr_multiplier = 1;  ///< of StepScalars::lr
};

/// What stays the same over a run.
struct AdamWCoefficients {
    float beta1 = 0.9F;
    float beta2 = 0.95F;
    float epsilon = 1e-8F;
};

}  // namespace vocabpipe::kernels
