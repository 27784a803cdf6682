// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>

#include "kernels/host/parallel.hpp"
#include "kernels/host/rms_norm_row.hpp"
#include "kernels/norm_checks.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Mean over all columns of a row; own() is the sum over x's columns.
template <typename Own>
float mean_of(const RmsNormOptions& options, ConstTensor x, int64_t row, Own&& own) {
    if (!options.sums) return own() / static_cast<float>(x.cols);
    return options.sums.as<float>()[row] / static_cast<float>(options.columns);
}

}  // namespace

void rms_norm_sums(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                   const RmsNormOptions& options, ConstTensor statistics, Tensor sums) {
    require_norm_sums(dy, x, gamma, statistics, sums);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* x_row = x.as<T>() + row * x.stride;
                sums.as<float>()[row] =
                    dy ? row_gz(dy.as<T>() + row * dy.stride, x_row, gamma.as<T>(),
                                options.weight_offset,
                                statistics.as<float>()[row * statistics.stride], x.cols)
                       : row_squares(x_row, x.cols);
            }
        });
    });
}

void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, const RmsNormOptions& options,
                      ConstTensor residual, Tensor y, Tensor statistics) {
    require_norm_forward(x, gamma, residual, y);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    require_norm_sums(options, x);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* x_row = x.as<T>() + row * x.stride;
                T* y_row = y.as<T>() + row * y.stride;
                const float mean =
                    mean_of(options, x, row, [&] { return row_squares(x_row, x.cols); });
                statistics.as<float>()[row * statistics.stride] =
                    residual ? rms_norm_row<true>(x_row, gamma.as<T>(), options, mean,
                                                  residual.as<T>() + row * residual.stride, x.cols,
                                                  y_row)
                             : rms_norm_row<false, T>(x_row, gamma.as<T>(), options, mean, nullptr,
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
    require_norm_sums(options, x);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* dy_row = dy.as<T>() + row * dy.stride;
                const T* x_row = x.as<T>() + row * x.stride;
                const float inverse_rms = statistics.as<float>()[row * statistics.stride];
                T* dx_row = dx.as<T>() + row * dx.stride;
                const float mean_gz = mean_of(options, x, row, [&] {
                    return row_gz(dy_row, x_row, gamma.as<T>(), options.weight_offset, inverse_rms,
                                  x.cols);
                });
                if (residual) {
                    rms_norm_backward_row<true>(dy_row, x_row, gamma.as<T>(), options, inverse_rms,
                                                mean_gz, residual.as<T>() + row * residual.stride,
                                                x.cols, dx_row);
                } else {
                    rms_norm_backward_row<false, T>(dy_row, x_row, gamma.as<T>(), options,
                                                    inverse_rms, mean_gz, nullptr, x.cols, dx_row);
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
