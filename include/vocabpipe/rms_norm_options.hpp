// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe::kernels {

/// Of Operators::rms_norm_forward() and head_norm_forward(), and of their gradients.
struct RmsNormOptions {
    float epsilon = 1e-6F;    ///< Llama's
    float weight_offset = 0;  ///< 1 where files keep gamma - 1 (Gemma)
};

}  // namespace vocabpipe::kernels
