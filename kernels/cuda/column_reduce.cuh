// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix, in a fixed order: blocks sum pieces of the rows into the lane's
// workspace, and a second kernel adds the pieces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace vocabpipe::kernels::cuda {

inline constexpr int kReduceLanes = 32;    // threads along the columns of a block
inline constexpr int kReduceRows = 8;      // threads along its rows
inline constexpr int kReduceRowsEach = 8;  // rows per thread that are worth starting it
inline constexpr int kReduceBlocksPerSm = 4;
inline constexpr int kFoldRows = 32;  // threads along the pieces of an ordered sum

/// Where kSums results of `cols` columns go.
template <int kSums>
struct ColumnTotals {
    static_assert(kSums == 1 || kSums == 2);
    float* data[kSums];
    bool accumulate;
};

/// Source::add(row, col, sum): sum[i] += the term of element (row, col + i).
/// With one piece the totals are written at once, otherwise partial[piece][col].
template <int kCount, typename Source>
__global__ void __launch_bounds__(kReduceLanes* kReduceRows)
    column_pieces_kernel(Source source, int64_t rows, int64_t cols, int64_t rows_per_piece,
                         float* partial, ColumnTotals<1> totals) {
    __shared__ float tile[kReduceRows][kCount][kReduceLanes];
    const int64_t base = int64_t{blockIdx.x} * kReduceLanes * kCount;
    const int64_t col = base + int64_t{threadIdx.x} * kCount;
    const int64_t begin = int64_t{blockIdx.y} * rows_per_piece;
    const int64_t end = begin + rows_per_piece < rows ? begin + rows_per_piece : rows;
    Vector<kCount> sum = {};
    if (col < cols) {
        for (int64_t row = begin + threadIdx.y; row < end; row += kReduceRows) {
            source.add(row, col, sum);
        }
    }
    for (int i = 0; i < kCount; ++i) tile[threadIdx.y][i][threadIdx.x] = sum[i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y); i < kCount; i += kReduceRows) {
        const int64_t mine = col + i;
        if (mine >= cols) continue;
        float total = 0.0F;
        for (int y = 0; y < kReduceRows; ++y) total += tile[y][i][threadIdx.x];
        if (gridDim.y == 1) {
            float& at = totals.data[0][mine];
            at = totals.accumulate ? at + total : total;
        } else {
            partial[int64_t{blockIdx.y} * cols + mine] = total;
        }
    }
}

/// The sums of a thread that owns kCount columns of a piece of the rows.
template <int kCount, int kSums>
__device__ __forceinline__ void write_piece(const Vector<kCount> (&sums)[kSums], int64_t piece,
                                            int64_t pieces, int64_t col, int64_t cols,
                                            float* partial, const ColumnTotals<kSums>& totals) {
    for (int which = 0; which < kSums; ++which) {
        if (pieces > 1) {
            sums[which].store(partial + (piece * kSums + which) * cols + col);
            continue;
        }
        float* const to = totals.data[which] + col;
        for (int i = 0; i < kCount; ++i) {
            to[i] = totals.accumulate ? to[i] + sums[which][i] : sums[which][i];
        }
    }
}

/// Adds up totals from partial[piece][which][col]: each thread adds every kFoldRows-th piece, in
/// order, and then the threads' sums are added in order.
template <int kSums>
__global__ void __launch_bounds__(kReduceLanes* kFoldRows)
    fold_pieces_kernel(const float* partial, int64_t pieces, int64_t cols,
                       ColumnTotals<kSums> totals) {
    __shared__ float tile[kFoldRows][kReduceLanes];
    const int64_t col = int64_t{blockIdx.x} * kReduceLanes + threadIdx.x;
    const int which = static_cast<int>(blockIdx.y);
    float sum = 0.0F;
    if (col < cols) {
#pragma unroll 4
        for (int64_t piece = threadIdx.y; piece < pieces; piece += kFoldRows) {
            sum += partial[(piece * kSums + which) * cols + col];
        }
    }
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= cols) return;
    float total = 0.0F;
    for (int y = 0; y < kFoldRows; ++y) total += tile[y][threadIdx.x];
    float* at = (which == 0 ? totals.data[0] : totals.data[kSums - 1]) + col;
    *at = totals.accumulate ? *at + total : total;
}

/// Does nothing where there is one piece: its sums are the totals.
template <int kSums>
void fold_pieces(CallSite ctx, const float* partial, int64_t pieces, int64_t cols,
                 const ColumnTotals<kSums>& totals) {
    if (pieces == 1) return;
    launch(ctx, fold_pieces_kernel<kSums>, dim3(blocks_for(cols, kReduceLanes), kSums),
           dim3(kReduceLanes, kFoldRows), partial, pieces, cols, totals);
}

/// totals[col] = sum over rows of the source's terms [+ totals[col]].
template <int kCount, typename Source>
void column_reduce(CallSite ctx, const Source& source, int64_t rows, int64_t cols,
                   const ColumnTotals<1>& totals) {
    if (cols == 0) return;
    auto& engine = ctx.cuda();
    const unsigned column_blocks = blocks_for(cols, kReduceLanes * kCount);
    const auto fit = static_cast<int64_t>(engine.workspace().size() / sizeof(float)) / cols;
    const int64_t wanted = std::min<int64_t>(
        blocks_for(rows, kReduceRows * kReduceRowsEach),
        blocks_for(int64_t{engine.multiprocessors()} * kReduceBlocksPerSm, column_blocks));
    const int64_t most = std::clamp<int64_t>(std::min(wanted, fit), 1, 65535);
    const int64_t rows_per_piece = std::max<int64_t>(1, (rows + most - 1) / most);
    const int64_t pieces = std::max<int64_t>(1, (rows + rows_per_piece - 1) / rows_per_piece);
    auto* partial = reinterpret_cast<float*>(engine.workspace().data());
    launch(ctx, column_pieces_kernel<kCount, Source>,
           dim3(column_blocks, static_cast<unsigned>(pieces)), dim3(kReduceLanes, kReduceRows),
           source, rows, cols, rows_per_piece, partial, totals);
    fold_pieces(ctx, partial, pieces, cols, totals);
}

}  // namespace vocabpipe::kernels::cuda
