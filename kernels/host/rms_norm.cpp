// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>

#include "kernels/host/parallel.hpp"
#include "kernels/host/rms_norm_row.hpp"
#include "kernels/norm_checks.hpp"

namespace vocabpipe::kernels::host {

void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, const RmsNormOptions& options,
                      ConstTensor residual, Tensor y, Tensor statistics) {
    require_norm_forward(x, gamma, residual, y);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* x_row = x.as<T>() + row * x.stride;
                T* y_row = y.as<T>() + row * y.stride;
                statistics.as<float>()[row * statistics.stride] =
                    residual ? rms_norm_row<true>(x_row, gamma.as<T>(), options,
                                                  residual.as<T>() + row * residual.stride, x.cols,
                                                  y_row)
                             : rms_norm_row<false, T>(x_row, gamma.as<T>(), options, nullptr,
                                                      x.cols, y_row);
            }
        });
    });
}

void rms_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                             const RmsNormOptions& options, ConstTensor statistics,
                             ConstTensor residual, Tensor dx) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* dy_row = dy.as<T>() + row * dy.stride;
                const T* x_row = x.as<T>() + row * x.stride;
                const float inverse_rms = statistics.as<float>()[row * statistics.stride];
                T* dx_row = dx.as<T>() + row * dx.stride;
                if (residual) {
                    rms_norm_backward_row<true>(dy_row, x_row, gamma.as<T>(), options, inverse_rms,
                                                residual.as<T>() + row * residual.stride, x.cols,
                                                dx_row);
                } else {
                    rms_norm_backward_row<false, T>(dy_row, x_row, gamma.as<T>(), options,
                                                    inverse_rms, nullptr, x.cols, dx_row);
                }
            }
        });
    });
}

void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                              Tensor dgamma, bool accumulate) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    with_type(x.dtype, [&]<typename T>() {
        // Split by columns, so that every sum runs over all rows in order on one thread.
        parallel_ranges(ctx, x.cols, x.size(), [&](int64_t begin, int64_t end) {
            float* sum = dgamma.as<float>();
            if (!accumulate) std::fill(sum + begin, sum + end, 0.0F);
            for (int64_t row = 0; row < x.rows; ++row) {
                const T* dy_row = dy.as<T>() + row * dy.stride;
                const T* x_row = x.as<T>() + row * x.stride;
                const float inverse_rms = statistics.as<float>()[row * statistics.stride];
#pragma omp simd
                for (int64_t i = begin; i < end; ++i) {
                    sum[i] += to_float(dy_row[i]) * (to_float(x_row[i]) * inverse_rms);
                }
            }
        });
    });
}

void rms_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                       const RmsNormOptions& options, ConstTensor statistics, ConstTensor residual,
                       Tensor dx, Tensor dgamma, bool accumulate) {
    rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, accumulate);
    rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, residual, dx);  // over dy, too
}

}  // namespace vocabpipe::kernels::host
