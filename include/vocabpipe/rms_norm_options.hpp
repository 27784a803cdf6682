// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tensor.hpp"

#include <cstdint>

namespace vocabpipe::kernels {

/// Options of Operators::rms_norm_forward() and head_norm_forward(), and of their gradients.
struct RmsNormOptions {
    float epsilon = 1e-6F;    ///< Llama's
    float weight_offset = 0;  ///< 1 where files keep gamma - 1 (Gemma)
    /// (1, N) fp32: Operators::rms_norm_sums() over all columns, if x has only some of them (tensor
    /// ranks); empty: x has all. Not for head norms.
    ConstTensor sums = {};
    int64_t columns = 0;  ///< number of all columns, with `sums`
};

}  // namespace vocabpipe::kernels
