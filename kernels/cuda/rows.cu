// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/row_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// A thread per kCount columns of a row of y.
template <typename T, int kCount>
__global__ void __launch_bounds__(kMapThreads)
    mean_rows_kernel(const T* __restrict__ x, int64_t x_stride, int64_t count, T* __restrict__ y,
                     int64_t y_stride, int64_t rows, int64_t cols) {
    const auto divisor = static_cast<float>(count);
    for_elements<kCount>(rows, cols, [&](int64_t row, int64_t col) {
        const T* const first = x + row * count * x_stride + col;
        Vector<kCount> sum = loaded<T, kCount>(first);
        for (int64_t other = 1; other < count; ++other) {
            const auto next = loaded<T, kCount>(first + other * x_stride);
            for (int i = 0; i < kCount; ++i) sum[i] += next[i];
        }
        for (int i = 0; i < kCount; ++i) sum[i] /= divisor;
        sum.store(y + row * y_stride + col);
    });
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kMapThreads)
    spread_rows_kernel(const T* __restrict__ dy, int64_t dy_stride, int64_t count,
                       T* __restrict__ dx, int64_t dx_stride, int64_t rows, int64_t cols) {
    const auto divisor = static_cast<float>(count);
    for_elements<kCount>(rows, cols, [&](int64_t row, int64_t col) {
        auto value = loaded<T, kCount>(dy + row / count * dy_stride + col);
        for (int i = 0; i < kCount; ++i) value[i] /= divisor;
        value.store(dx + row * dx_stride + col);
    });
}

constexpr int kTile = 32;
constexpr int kTileRows = 8;  ///< of threads

/// A block turns tiles of (kTile columns, kTile tokens) over in shared memory, so that neighbouring
/// threads both read and write neighbours.
template <typename T>
__global__ void __launch_bounds__(kTile* kTileRows)
    columns_to_rows_kernel(const float* __restrict__ columns, int64_t tokens, T* __restrict__ y,
                           int64_t y_stride, int64_t cols) {
    __shared__ float tile[kTile][kTile + 1];  // one more: a column's numbers are in all banks
    const int64_t token_tiles = (tokens + kTile - 1) / kTile;
    const int64_t tiles = token_tiles * ((cols + kTile - 1) / kTile);
    const auto x = static_cast<int>(threadIdx.x);
    for (int64_t at = blockIdx.x; at < tiles; at += gridDim.x) {
        const int64_t first_token = at % token_tiles * kTile;
        const int64_t first_col = at / token_tiles * kTile;
        for (int j = static_cast<int>(threadIdx.y); j < kTile; j += kTileRows) {
            if (first_col + j < cols && first_token + x < tokens) {
                tile[j][x] = columns[(first_col + j) * tokens + first_token + x];
            }
        }
        __syncthreads();
        for (int n = static_cast<int>(threadIdx.y); n < kTile; n += kTileRows) {
            if (first_token + n < tokens && first_col + x < cols) {
                y[(first_token + n) * y_stride + first_col + x] = from_float<T>(tile[x][n]);
            }
        }
        __syncthreads();
    }
}

}  // namespace

void mean_rows(Context& ctx, ConstTensor x, int64_t count, Tensor y) {
    require_row_groups(x, count, y);
    if (y.size() == 0) return;
    with_element_type(y.dtype, [&]<typename T>() {
        const auto mean = [&]<int kCount>() {
            const MapShape shape = map_shape(y.rows, y.cols, kCount);
            launch(ctx, mean_rows_kernel<T, kCount>, shape.grid, shape.block, x.as<T>(), x.stride,
                   count, y.as<T>(), y.stride, y.rows, y.cols);
        };
        with_vectors<widest<T>()>(mean, x, y);
    });
}

void spread_rows(Context& ctx, ConstTensor dy, int64_t count, Tensor dx) {
    require_row_groups(dx, count, dy);
    if (dx.size() == 0) return;
    with_element_type(dx.dtype, [&]<typename T>() {
        const auto spread = [&]<int kCount>() {
            const MapShape shape = map_shape(dx.rows, dx.cols, kCount);
            launch(ctx, spread_rows_kernel<T, kCount>, shape.grid, shape.block, dy.as<T>(),
                   dy.stride, count, dx.as<T>(), dx.stride, dx.rows, dx.cols);
        };
        with_vectors<widest<T>()>(spread, dy, dx);
    });
}

void columns_to_rows(Context& ctx, std::span<const float> columns, int64_t tokens, Tensor y) {
    require_columns_to_rows(columns, tokens, y);
    if (y.size() == 0) return;
    const auto tiles = [](int64_t count) { return (count + kTile - 1) / kTile; };
    with_element_type(y.dtype, [&]<typename T>() {
        launch(ctx, columns_to_rows_kernel<T>, blocks_for(tiles(tokens) * tiles(y.cols), 1),
               dim3(kTile, kTileRows), columns.data(), tokens, y.as<T>(), y.stride, y.cols);
    });
}

}  // namespace vocabpipe::kernels::cuda
