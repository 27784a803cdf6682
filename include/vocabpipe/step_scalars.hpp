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
    float lr = 0;                ///< learning rate
    float bias_correction1 = 1;  ///< 1 - beta1^t at step t = 1, 2, ...
    float bias_correction2 = 1;  ///< 1 - beta2^t
    float clip_grad = 0;         ///< largest global gradient norm; 0: no clipping
    int64_t counted_tokens = 0;  ///< 0: no update
    double stop_requested = 0;   ///< added by this rank to `stops`
    // Found by finish_report().
    double loss = 0;           ///< mean over the counted tokens
    double grad_norm = 0;      ///< global, before clipping
    double stops = 0;          ///< sum of the ranks' requests to stop
    float gradient_scale = 1;  ///< clips: clip_grad / grad_norm, at most 1
    int32_t update = 0;        ///< 0: no counted token, or loss or norm not finite; nothing changes
};

/// The tensors of one parameter for the optimizer, all equally long.
struct AdamWTensor {
    std::span<float> master;          ///< p
    std::span<const float> gradient;  ///< before StepScalars::gradient_scale
    std::span<float> exp_avg;         ///< m
    std::span<float> exp_avg_sq;      ///< v
    Tensor weight;                    ///< a dense bf16 copy of `master` to refresh, or empty
    float weight_decay = 0;           ///< p loses lr x weight_decay x p
    float lr_multiplier = 1;          ///< of StepScalars::lr
};

/// What stays the same over a run.
struct AdamWCoefficients {
    float beta1 = 0.9F;     ///< of exp_avg
    float beta2 = 0.95F;    ///< of exp_avg_sq
    float epsilon = 1e-8F;  ///< added to sqrt(v)
};

}  // namespace vocabpipe::kernels
