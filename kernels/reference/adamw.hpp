// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/adamw_options.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::reference {

/// All spans have the same length; `weight` is empty or a dense bf16 copy of `master` to refresh.
void adamw_step(Context& ctx, std::span<float> master, std::span<const float> gradient,
                std::span<float> exp_avg, std::span<float> exp_avg_sq, Tensor weight,
                const AdamWOptions& options);

}  // namespace vocabpipe::kernels::reference
