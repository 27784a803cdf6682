// SPDX-License-Identifier: Apache-2.0
// RMSNorm of one row of h elements, for whole rows (rms_norm.cpp) and heads of them
// (head_norm.cpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/bf16.hpp"
#include "vocabpipe/rms_norm_options.hpp"

namespace vocabpipe::kernels::host {

template <typename T>
float row_squares(const T* x, int64_t h) {
    float squares = 0.0F;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < h; ++i) squares += to_float(x[i]) * to_float(x[i]);
    return squares;
}

/// Returns the sum of g z.
template <typename T>
float row_gz(const T* dy, const T* x, const T* gamma, float offset, float inverse_rms, int64_t h) {
    float sum_gz = 0.0F;
#pragma omp simd reduction(+ : sum_gz)
    for (int64_t i = 0; i < h; ++i) {
        const float g = to_float(dy[i]) * (to_float(gamma[i]) + offset);
        sum_gz += g * (to_float(x[i]) * inverse_rms);
    }
    return sum_gz;
}

/// Returns inverse_rms. `mean`: the mean square.
template <bool kResidual, typename T>
float rms_norm_row(const T* x, const T* gamma, const RmsNormOptions& options, float mean,
                   const T* residual, int64_t h, T* y) {
    const float inverse_rms = 1.0F / std::sqrt(mean + options.epsilon);
    const float offset = options.weight_offset;
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) {
        float result = (to_float(gamma[i]) + offset) * (to_float(x[i]) * inverse_rms);
        if constexpr (kResidual) result += to_float(residual[i]);
        y[i] = from_float<T>(result);
    }
    return inverse_rms;
}

template <bool kResidual, typename T>
void rms_norm_backward_row(const T* dy, const T* x, const T* gamma, const RmsNormOptions& options,
                           float inverse_rms, float mean_gz, const T* residual, int64_t h, T* dx) {
    const float offset = options.weight_offset;
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) {
        const float g = to_float(dy[i]) * (to_float(gamma[i]) + offset);
        const float z = to_float(x[i]) * inverse_rms;
        float result = inverse_rms * (g - z * mean_gz);
        if constexpr (kResidual) result += to_float(residual[i]);
        dx[i] = from_float<T>(result);
    }
}

}  // namespace vocabpipe::kernels::host
