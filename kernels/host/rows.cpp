// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>

#include "kernels/bf16.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/row_checks.hpp"

namespace vocabpipe::kernels::host {

void mean_rows(Context& ctx, ConstTensor x, int64_t count, Tensor y) {
    require_row_groups(x, count, y);
    constexpr int64_t kStrip = 1024;  // sums that stay in the first-level cache
    const auto divisor = static_cast<float>(count);
    with_type(y.dtype, [&]<typename T>() {
        parallel_ranges(ctx, y.rows, x.size(), [&](int64_t begin, int64_t end) {
            std::array<float, kStrip> sum;
            for (int64_t row = begin; row < end; ++row) {
                for (int64_t first = 0; first < y.cols; first += kStrip) {
                    const int64_t width = std::min(kStrip, y.cols - first);
                    const T* in = x.as<T>() + row * count * x.stride + first;
#pragma omp simd
                    for (int64_t i = 0; i < width; ++i) sum[i] = to_float(in[i]);
                    for (int64_t other = 1; other < count; ++other) {
                        in += x.stride;
#pragma omp simd
                        for (int64_t i = 0; i < width; ++i) sum[i] += to_float(in[i]);
                    }
                    T* const to = y.as<T>() + row * y.stride + first;
#pragma omp simd
                    for (int64_t i = 0; i < width; ++i) to[i] = from_float<T>(sum[i] / divisor);
                }
            }
        });
    });
}

void spread_rows(Context& ctx, ConstTensor dy, int64_t count, Tensor dx) {
    require_row_groups(dx, count, dy);
    const auto divisor = static_cast<float>(count);
    with_type(dx.dtype, [&]<typename T>() {
        parallel_ranges(ctx, dx.rows, dx.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* const from = dy.as<T>() + row / count * dy.stride;
                T* const to = dx.as<T>() + row * dx.stride;
#pragma omp simd
                for (int64_t i = 0; i < dx.cols; ++i) {
                    to[i] = from_float<T>(to_float(from[i]) / divisor);
                }
            }
        });
    });
}

void columns_to_rows(Context& ctx, std::span<const float> columns, int64_t tokens, Tensor y) {
    require_columns_to_rows(columns, tokens, y);
    constexpr int64_t kRows = 16;  // a cache line of a column
    const int64_t blocks = (tokens + kRows - 1) / kRows;
    with_type(y.dtype, [&]<typename T>() {
        parallel_ranges(ctx, blocks, y.size(), [&](int64_t begin, int64_t end) {
            for (int64_t block = begin; block < end; ++block) {
                const int64_t first = block * kRows;
                const int64_t rows = std::min(kRows, tokens - first);
                T* const to = y.as<T>() + first * y.stride;
                for (int64_t j = 0; j < y.cols; ++j) {
                    const float* const from = columns.data() + j * tokens + first;
                    for (int64_t n = 0; n < rows; ++n) {
                        to[n * y.stride + j] = from_float<T>(from[n]);
                    }
                }
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host
