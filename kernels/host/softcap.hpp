// SPDX-License-Identifier: Apache-2.0
// Soft caps c tanh(x / c) and their slopes, for attention's scores and for logits (Gemma 2).
#pragma once

#include <cstdint>

#include "kernels/host/math.hpp"

namespace vocabpipe::kernels::host {

/// values = cap tanh(scale values / cap).
inline void soft_cap(float* values, int64_t count, float scale, float cap) {
    const float factor = scale / cap;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) values[j] = cap * fast_tanh(factor * values[j]);
}

/// 1 - (capped / cap)^2, the slope at a capped value; 0, not NaN times 0, where -infinity masks it.
[[nodiscard]] inline float soft_cap_slope(float capped, float inverse_cap) {
    const float tanh = capped * inverse_cap;
    const float slope = 1.0F - tanh * tanh;
    return slope < 0.0F ? 0.0F : slope;
}

}  // namespace vocabpipe::kernels::host
