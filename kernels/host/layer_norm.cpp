// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/bf16.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/norm_checks.hpp"

namespace vocabpipe::kernels::host {

namespace {

template <typename T>
void forward_row(const T* x, const T* gamma, const T* beta, int64_t h, float epsilon, T* y,
                 float* statistics) {
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < h; ++i) sum += to_float(x[i]);
    const float mean = sum / static_cast<float>(h);
    float squares = 0.0F;  // of differences: two passes do not cancel
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < h; ++i) {
        const float difference = to_float(x[i]) - mean;
        squares += difference * difference;
    }
    const float inverse_std = 1.0F / std::sqrt(squares / static_cast<float>(h) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) {
        const float z = (to_float(x[i]) - mean) * inverse_std;
        y[i] = from_float<T>(z * to_float(gamma[i]) + to_float(beta[i]));
    }
    statistics[0] = mean;
    statistics[1] = inverse_std;
}

template <bool kResidual, typename T>
void backward_row(const T* dy, const T* x, const T* gamma, const float* statistics,
                  const T* residual, int64_t h, T* dx) {
    const float mean = statistics[0];
    const float inverse_std = statistics[1];
    float sum_g = 0.0F;
    float sum_gz = 0.0F;
#pragma omp simd reduction(+ : sum_g, sum_gz)
    for (int64_t i = 0; i < h; ++i) {
        const float g = to_float(dy[i]) * to_float(gamma[i]);
        sum_g += g;
        sum_gz += g * ((to_float(x[i]) - mean) * inverse_std);
    }
    const float mean_g = sum_g / static_cast<float>(h);
    const float mean_gz = sum_gz / static_cast<float>(h);
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) {
        const float g = to_float(dy[i]) * to_float(gamma[i]);
        const float z = (to_float(x[i]) - mean) * inverse_std;
        float result = inverse_std * (g - mean_g - z * mean_gz);
        if constexpr (kResidual) result += to_float(residual[i]);
        dx[i] = from_float<T>(result);
    }
}

}  // namespace

void layer_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, ConstTensor beta,
                        float epsilon, Tensor y, Tensor statistics) {
    require_norm_forward(x, gamma, {}, y);
    require_norm_weight(beta, x);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                forward_row(x.as<T>() + row * x.stride, gamma.as<T>(), beta.as<T>(), x.cols,
                            epsilon, y.as<T>() + row * y.stride,
                            statistics.as<float>() + row * statistics.stride);
            }
        });
    });
}

void layer_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                               ConstTensor statistics, ConstTensor residual, Tensor dx) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* dy_row = dy.as<T>() + row * dy.stride;
                const T* x_row = x.as<T>() + row * x.stride;
                const float* moments = statistics.as<float>() + row * statistics.stride;
                T* dx_row = dx.as<T>() + row * dx.stride;
                if (residual) {
                    backward_row<true>(dy_row, x_row, gamma.as<T>(), moments,
                                       residual.as<T>() + row * residual.stride, x.cols, dx_row);
                } else {
                    backward_row<false, T>(dy_row, x_row, gamma.as<T>(), moments, nullptr, x.cols,
                                           dx_row);
                }
            }
        });
    });
}

void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                                Tensor dgamma, Tensor dbeta, bool accumulate) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_backward_weight(dy, x, dbeta);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    with_type(x.dtype, [&]<typename T>() {
        // Split by columns, so that every sum runs over all rows in order on one thread.
        parallel_ranges(ctx, x.cols, x.size(), [&](int64_t begin, int64_t end) {
            float* gamma_sum = dgamma.as<float>();
            float* beta_sum = dbeta.as<float>();
            if (!accumulate) {
                std::fill(gamma_sum + begin, gamma_sum + end, 0.0F);
                std::fill(beta_sum + begin, beta_sum + end, 0.0F);
            }
            for (int64_t row = 0; row < x.rows; ++row) {
                const T* dy_row = dy.as<T>() + row * dy.stride;
                const T* x_row = x.as<T>() + row * x.stride;
                const float mean = statistics.as<float>()[row * statistics.stride];
                const float inverse_std = statistics.as<float>()[row * statistics.stride + 1];
#pragma omp simd
                for (int64_t i = begin; i < end; ++i) {
                    const float gradient = to_float(dy_row[i]);
                    gamma_sum[i] += gradient * ((to_float(x_row[i]) - mean) * inverse_std);
                    beta_sum[i] += gradient;
                }
            }
        });
    });
}

void layer_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                         ConstTensor statistics, ConstTensor residual, Tensor dx, Tensor dgamma,
                         Tensor dbeta, bool accumulate) {
    layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, accumulate);
    layer_norm_backward_input(ctx, dy, x, gamma, statistics, residual, dx);  // may overwrite dy
}

}  // namespace vocabpipe::kernels::host
