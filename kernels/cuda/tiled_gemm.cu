// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tiled_gemm.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kTile = 64;      // rows and columns of c per block
constexpr int kDepth = 16;     // terms per stage
constexpr int kSide = 16;      // threads along each side of a tile
constexpr int kPerThread = 4;  // rows and columns of c per thread

/// Element (i, p) of op(matrix) is data[i * row + p * col].
struct Operand {
    const void* data;
    int64_t row, col, step;
};

struct Arguments {
    int64_t m, n, k, batch;
    Operand a, b;
    void* c;
    int64_t c_row, c_step;
    const void* addend;
    int64_t addend_row;
    const void* bias;
    bool wide_bias;  ///< fp32
};

/// A (kTile, kDepth) tile of an operand as fp32, zeros outside. Neighbouring threads read
/// neighbouring elements in either layout.
template <typename T>
__device__ void stage(float (&tile)[kDepth][kTile + 1], const T* data, int64_t row, int64_t col,
                      int64_t first_row, int64_t rows, int64_t first_col, int64_t cols) {
    const int thread = static_cast<int>(threadIdx.y * kSide + threadIdx.x);
    for (int at = thread; at < kTile * kDepth; at += kSide * kSide) {
        const int i = col == 1 ? at / kDepth : at % kTile;
        const int p = col == 1 ? at % kDepth : at / kTile;
        const int64_t r = first_row + i, c = first_col + p;
        tile[p][i] = r < rows && c < cols ? to_float(data[r * row + c * col]) : 0.0F;
    }
}

template <typename T, typename C>
__global__ void __launch_bounds__(kSide* kSide) tiled_gemm_kernel(Arguments g) {
    __shared__ float a_tile[kDepth][kTile + 1];
    __shared__ float b_tile[kDepth][kTile + 1];
    const int64_t tiles_n = (g.n + kTile - 1) / kTile;
    const int64_t tiles = (g.m + kTile - 1) / kTile * tiles_n;
    for (int64_t tile = blockIdx.x; tile < tiles * g.batch; tile += gridDim.x) {
        const int64_t item = tile / tiles;
        const int64_t row0 = tile % tiles / tiles_n * kTile;
        const int64_t col0 = tile % tiles_n * kTile;
        const T* a = static_cast<const T*>(g.a.data) + item * g.a.step;
        const T* b = static_cast<const T*>(g.b.data) + item * g.b.step;
        float sums[kPerThread][kPerThread] = {};
        for (int64_t p0 = 0; p0 < g.k; p0 += kDepth) {
            stage(a_tile, a, g.a.row, g.a.col, row0, g.m, p0, g.k);
            stage(b_tile, b, g.b.row, g.b.col, col0, g.n, p0, g.k);
            __syncthreads();
            for (int p = 0; p < kDepth; ++p) {
                float left[kPerThread], right[kPerThread];
#pragma unroll
                for (int i = 0; i < kPerThread; ++i) {
                    left[i] = a_tile[p][threadIdx.y + i * kSide];
                    right[i] = b_tile[p][threadIdx.x + i * kSide];
                }
#pragma unroll
                for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
                    for (int j = 0; j < kPerThread; ++j) {
                        sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
                    }
                }
            }
            __syncthreads();
        }
        C* c = static_cast<C*>(g.c) + item * g.c_step;
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
            const int64_t row = row0 + threadIdx.y + i * kSide;
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) {
                const int64_t col = col0 + threadIdx.x + j * kSide;
                if (row >= g.m || col >= g.n) continue;
                float value = sums[i][j];
                if (g.addend != nullptr) {
                    value += to_float(static_cast<const C*>(
                        g.addend)[item * g.c_step + row * g.addend_row + col]);
                }
                if (g.bias != nullptr) {
                    value += g.wide_bias ? static_cast<const float*>(g.bias)[col]
                                         : to_float(static_cast<const __nv_bfloat16*>(g.bias)[col]);
                }
                c[row * g.c_row + col] = from_float<C>(value);
            }
        }
    }
}

/// The outer index runs along the rows of op(a), or along the columns of op(b).
Operand operand(ConstTensor t, bool outer_is_row, int64_t step) {
    return outer_is_row ? Operand{t.data, t.stride, 1, step} : Operand{t.data, 1, t.stride, step};
}

}  // namespace

void tiled_gemm(CallSite ctx, const Product& p) {
    Arguments g{};
    g.m = p.c.rows;
    g.n = p.c.cols;
    g.k = p.transpose_a ? p.a.rows : p.a.cols;
    g.batch = p.batch;
    g.a = operand(p.a, !p.transpose_a, p.a_step);
    g.b = operand(p.b, p.transpose_b, p.b_step);
    g.c = p.c.data;
    g.c_row = p.c.stride;
    g.c_step = p.c_step;
    g.addend = p.addend.data;
    g.addend_row = p.addend.stride;
    g.bias = p.bias.data;
    g.wide_bias = p.bias.dtype == DType::fp32;
    const int64_t tiles =
        (g.m + kTile - 1) / kTile * ((g.n + kTile - 1) / kTile) * std::max<int64_t>(g.batch, 0);
    if (tiles == 0) return;
    with_element_type(p.a.dtype, [&]<typename T>() {
        with_element_type(p.c.dtype, [&]<typename C>() {
            launch(ctx, tiled_gemm_kernel<T, C>, dim3(blocks_for(tiles, 1)), dim3(kSide, kSide), g);
        });
    });
}

}  // namespace vocabpipe::kernels::cuda
