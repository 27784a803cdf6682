// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/step_scalars.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::cuda {

/// One step of AdamW (kernels/adamw_options.hpp) over all tensors, a launch per 48 of them,
/// whatever their sizes. Nothing if !scalars->update, which the GPU reads. One pass over memory, 28
/// bytes per parameter (30 with a bf16 copy).
void adamw(Context& ctx, std::span<const AdamWTensor> tensors,
           const AdamWCoefficients& coefficients, const StepScalars* scalars);

}  // namespace vocabpipe::kernels::cuda
