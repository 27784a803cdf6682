// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/adamw_options.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// One pass over memory, 28 bytes per parameter (30 with `weight`). All spans have the same length;
/// `weight` is empty or a dense bf16 copy of `master` to refresh. Elementwise, so bits depend
/// neither on threads nor on how parameters are cut into calls.
void adamw_step(Context& ctx, std::span<float> master, std::span<const float> gradient,
                std::span<float> exp_avg, std::span<float> exp_avg_sq, Tensor weight,
                const AdamWOptions& options);

}  // namespace vocabpipe::kernels::host
