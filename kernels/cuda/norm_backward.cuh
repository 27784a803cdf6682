// SPDX-License-Identifier: Apache-2.0
// Backward of LayerNorm and RMSNorm. A block takes a piece of the rows, one after the other: its
// threads keep their columns' sums of dgamma and dbeta in registers, so that one read of dy and x
// serves all gradients; the sums of the pieces are added in order by a second kernel.
//
// dgamma and dbeta may also be computed without dx (after it, by a schedule that splits the
// backward pass): the pieces depend on the shape only, and one thread always sums a column of a
// piece row by row, so that both ways give the same bits. For the same reason every sum is an
// explicit fmaf: the compiler does not choose whether a product is rounded.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/norm_checks.hpp"
#include "vocabpipe/rms_norm_options.hpp"

namespace vocabpipe::kernels::cuda {

inline constexpr int kFewestNormRows = 4;      ///< per piece: its sums cost as much as a row or two
inline constexpr int kNormThreadsPerSm = 576;  ///< that 112 registers each leave room for
inline constexpr int kNormWeightThreads = 128;

/// Input of both norms besides gamma. kCentred: LayerNorm, whose statistics are mean and inverse
/// standard deviation; otherwise RMSNorm, whose only one is the inverse root mean square.
template <typename T, bool kCentred>
struct NormRows {
    static constexpr int kSums = kCentred ? 2 : 1;  ///< dgamma, dbeta; and those over a row
    const T* dy;
    const T* x;
    const float* statistics;
    int64_t rows, h, dy_stride, x_stride, statistics_stride, rows_per_piece;

    /// dy, and z = (x - mean) inverse_std or x inverse_rms.
    template <int kCount>
    __device__ __forceinline__ void load(int64_t row, int64_t col, Vector<kCount>& gradient,
                                         Vector<kCount>& z) const {
        gradient.load(dy + row * dy_stride + col);
        z.load(x + row * x_stride + col);
        const float inverse = inverse_of(row);
        if constexpr (kCentred) {
            const float mean = statistics[row * statistics_stride];
            for (int i = 0; i < kCount; ++i) z[i] = (z[i] - mean) * inverse;
        } else {
            for (int i = 0; i < kCount; ++i) z[i] *= inverse;
        }
    }
    [[nodiscard]] __device__ __forceinline__ float inverse_of(int64_t row) const {
        return statistics[row * statistics_stride + (kCentred ? 1 : 0)];
    }
    [[nodiscard]] __device__ __forceinline__ int64_t end_of(int64_t begin) const {
        return begin + rows_per_piece < rows ? begin + rows_per_piece : rows;
    }
};

/// sums[0] += dy z, sums[1] += dy.
template <int kCount, int kSums>
__device__ __forceinline__ void add_row(const Vector<kCount>& gradient, const Vector<kCount>& z,
                                        Vector<kCount> (&sums)[kSums]) {
    for (int i = 0; i < kCount; ++i) sums[0][i] = fmaf(gradient[i], z[i], sums[0][i]);
    if constexpr (kSums == 2) {
        for (int i = 0; i < kCount; ++i) sums[1][i] += gradient[i];
    }
}

template <typename T>
struct InputGradient {
    const T* gamma;
    const T* residual;  ///< or null
    T* dx;
    const float* sums;  ///< of g z over `columns` columns, of which x has h; or null
    int64_t residual_stride, dx_stride;
    float columns;
    float weight_offset;  ///< added to gamma
};

/// Sums kValues numbers over the block; all threads get the result. `by_warp` must not be that of
/// the previous call, which other warps may still read; it may be that of the one before.
template <int kValues>
__device__ __forceinline__ void sum_over_block(float (&values)[kValues],
                                               float (&by_warp)[kValues][kWarpThreads]) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
    for (int i = 0; i < kValues; ++i) {
        values[i] = warp_sum(values[i]);
        if (lane == 0) by_warp[i][warp] = values[i];
    }
    __syncthreads();
    for (int i = 0; i < kValues; ++i) values[i] = warp_sum(lane < warps ? by_warp[i][lane] : 0.0F);
}

/// One block per piece, kRows rows of it at a time. kSlots as in rows.cuh; 0: for rows of any
/// length, without the parameters' gradients. dx may be dy or residual: a thread reads its elements
/// of both before it writes them.
template <typename T, bool kCentred, int kCount, int kSlots, int kRows, bool kWeight>
__global__ void __launch_bounds__(kMostRowThreads)
    norm_backward_kernel(NormRows<T, kCentred> in, InputGradient<T> of_input, float* partial,
                         ColumnTotals<kCentred ? 2 : 1> totals) {
    static_assert(kSlots > 0 || !kWeight);
    constexpr int kSums = NormRows<T, kCentred>::kSums;
    constexpr int kKept = kSlots == 0 ? 1 : kSlots;
    __shared__ float by_warp[2][kRows * kSums][kWarpThreads];
    const int64_t begin = int64_t{blockIdx.x} * in.rows_per_piece;
    const int64_t end = in.end_of(begin);

    Vector<kCount> gamma[kKept];
    const auto load_gamma = [&](int64_t col, int slot) {
        gamma[slot].load(of_input.gamma + col);
        for (int i = 0; i < kCount; ++i) gamma[slot][i] += of_input.weight_offset;
    };
    if constexpr (kSlots > 0) for_columns<kCount, kSlots>(in.h, load_gamma);
    Vector<kCount> sums[kKept][kSums] = {};  // of dgamma, dbeta

    int turn = 0;
    for (int64_t first = begin; first < end; first += kRows, turn ^= 1) {
        Vector<kCount> dy[kRows][kKept], z[kRows][kKept], residual[kRows][kKept];
        const auto load = [&](int r, int64_t col, int slot) {
            if constexpr (kSlots == 0) load_gamma(col, slot);
            in.load(first + r, col, dy[r][slot], z[r][slot]);
            residual[r][slot] = {};
            if (of_input.residual != nullptr) {
                residual[r][slot].load(of_input.residual + (first + r) * of_input.residual_stride +
                                       col);
            }
        };
        float means[kRows * kSums] = {};  // of g z and of g = dy gamma, for every row
        for (int r = 0; r < kRows; ++r) {
            if (first + r >= end) break;
            for_columns<kCount, kSlots>(in.h, [&](int64_t col, int slot) {
                load(r, col, slot);
                for (int i = 0; i < kCount; ++i) {
                    const float gradient = dy[r][slot][i];
                    const float weight = gamma[slot][i];
                    float& of_gz = means[r * kSums];
                    of_gz = fmaf(gradient * weight, z[r][slot][i], of_gz);
                    if constexpr (kCentred) {
                        float& of_g = means[r * kSums + 1];
                        of_g = fmaf(gradient, weight, of_g);
                    }
                }
                if constexpr (kWeight) add_row(dy[r][slot], z[r][slot], sums[slot]);
            });
        }
        sum_over_block(means, by_warp[turn]);
        for (int r = 0; r < kRows; ++r) {
            if (first + r >= end) break;
            const float inverse = in.inverse_of(first + r);
            const float sum_gz =
                of_input.sums == nullptr ? means[r * kSums] : of_input.sums[first + r];
            const float mean_gz = sum_gz / of_input.columns;
            const float mean_g = kCentred ? means[r * kSums + kSums - 1] / of_input.columns : 0.0F;
            for_columns<kCount, kSlots>(in.h, [&](int64_t col, int slot) {
                if constexpr (kSlots == 0) load(r, col, slot);
                Vector<kCount> result;
                for (int i = 0; i < kCount; ++i) {
                    const float g = fmaf(dy[r][slot][i], gamma[slot][i], -mean_g);
                    result[i] =
                        fmaf(inverse, fmaf(-z[r][slot][i], mean_gz, g), residual[r][slot][i]);
                }
                result.store(of_input.dx + (first + r) * of_input.dx_stride + col);
            });
        }
    }
    if constexpr (kWeight) {
        for_columns<kCount, kSlots>(in.h, [&](int64_t col, int slot) {
            write_piece(sums[slot], blockIdx.x, gridDim.x, col, in.h, partial, totals);
        });
    }
}

/// Computes only dgamma and dbeta: block (columns, piece).
template <typename T, bool kCentred, int kCount>
__global__ void __launch_bounds__(kNormWeightThreads)
    norm_weight_kernel(NormRows<T, kCentred> in, float* partial,
                       ColumnTotals<kCentred ? 2 : 1> totals) {
    const int64_t col = (int64_t{blockIdx.x} * kNormWeightThreads + threadIdx.x) * kCount;
    if (col >= in.h) return;
    Vector<kCount> sums[NormRows<T, kCentred>::kSums] = {};
    const int64_t begin = int64_t{blockIdx.y} * in.rows_per_piece;
    const int64_t end = in.end_of(begin);
#pragma unroll 4
    for (int64_t row = begin; row < end; ++row) {
        Vector<kCount> dy, z;
        in.load(row, col, dy, z);
        add_row(dy, z, sums);
    }
    write_piece(sums, blockIdx.y, gridDim.y, col, in.h, partial, totals);
}

/// Calls launcher.template operator()<kSlots, kRows>(threads).
template <int kCount, typename Launcher>
void with_norm_shape(int64_t h, Launcher&& launcher) {
    const int64_t vectors = (h + kCount - 1) / kCount;
    const auto threads_for = [&](int64_t slots) {
        return blocks_for(vectors, kWarpThreads * slots) * kWarpThreads;
    };
    if (vectors <= kMostRowThreads) {
        launcher.template operator()<1, 2>(threads_for(1));
    } else if (vectors <= 2 * kMostRowThreads) {
        launcher.template operator()<2, 1>(threads_for(2));
    } else {
        launcher.template operator()<0, 1>(static_cast<unsigned>(kMostRowThreads));
    }
}

/// Rows per piece. Depends on the shape, the GPU and the lane's workspace, not on which gradients
/// are computed or how.
[[nodiscard]] inline int64_t norm_rows_per_piece(Context& ctx, int64_t rows, int64_t h, int sums) {
    const auto& engine = ctx.cuda();
    const auto fit = static_cast<int64_t>(engine.workspace().size() / sizeof(float)) / h / sums;
    const int64_t threads = blocks_for(h, 8 * kWarpThreads) * kWarpThreads;
    const int64_t per_sm = std::clamp<int64_t>(kNormThreadsPerSm / threads, 1, 8);
    const int64_t wanted =
        std::min<int64_t>(blocks_for(rows, kFewestNormRows), engine.multiprocessors() * per_sm);
    const int64_t pieces = std::clamp<int64_t>(std::min(wanted, fit), 1, 65535);
    return std::max<int64_t>((rows + pieces - 1) / pieces, 1);
}

/// Further options of the gradient of x; the defaults are LayerNorm's.
struct NormGain {
    ConstTensor gamma;
    RmsNormOptions options;
};

/// Columns that a mean covers.
[[nodiscard]] inline float columns_of(const RmsNormOptions& options, ConstTensor x) {
    return static_cast<float>(options.sums ? options.columns : x.cols);
}

/// Gradients of a norm whose arguments have been checked. dx empty: only the parameters' gradients,
/// without gain and residual; dgamma empty: only dx. dbeta: for a centred norm.
template <bool kCentred>
void norm_backward(CallSite ctx, ConstTensor dy, ConstTensor x, const NormGain& gain,
                   ConstTensor statistics, ConstTensor residual, Tensor dx, Tensor dgamma,
                   Tensor dbeta, bool accumulate) {
    constexpr int kSums = kCentred ? 2 : 1;
    if (x.cols == 0) return;
    ColumnTotals<kSums> totals{{dgamma.as<float>()}, accumulate};
    if constexpr (kCentred) totals.data[1] = dbeta.as<float>();
    auto* const partial = reinterpret_cast<float*>(ctx.cuda().workspace().data());
    const int64_t rows_per_piece = norm_rows_per_piece(ctx, x.rows, x.cols, kSums);
    const unsigned pieces = blocks_for(x.rows, rows_per_piece);
    with_element_type(x.dtype, [&]<typename T>() {
        const NormRows<T, kCentred> rows{.dy = dy.as<T>(),
                                         .x = x.as<T>(),
                                         .statistics = statistics.as<float>(),
                                         .rows = x.rows,
                                         .h = x.cols,
                                         .dy_stride = dy.stride,
                                         .x_stride = x.stride,
                                         .statistics_stride = statistics.stride,
                                         .rows_per_piece = rows_per_piece};
        const InputGradient<T> of_input{.gamma = gain.gamma.as<T>(),
                                        .residual = residual.as<T>(),
                                        .dx = dx.as<T>(),
                                        .sums = gain.options.sums.as<float>(),
                                        .residual_stride = residual.stride,
                                        .dx_stride = dx.stride,
                                        .columns = columns_of(gain.options, x),
                                        .weight_offset = gain.options.weight_offset};
        const auto weight_alone = [&]<int kCount>() {
            const dim3 grid(blocks_for(x.cols, kNormWeightThreads * kCount), pieces);
            launch(ctx, norm_weight_kernel<T, kCentred, kCount>, grid, dim3(kNormWeightThreads),
                   rows, partial, totals);
        };
        const auto input = [&]<int kCount>() {
            with_norm_shape<kCount>(x.cols, [&]<int kSlots, int kRows>(unsigned threads) {
                const auto run = [&]<bool kWeight>() {
                    launch(ctx, norm_backward_kernel<T, kCentred, kCount, kSlots, kRows, kWeight>,
                           dim3(pieces), dim3(threads), rows, of_input, partial, totals);
                };
                if constexpr (kSlots > 0) {
                    if (dgamma) return run.template operator()<true>();
                } else if (dgamma) {
                    weight_alone.template operator()<kCount>();  // first: dx may overwrite dy
                }
                run.template operator()<false>();
            });
        };
        if (dx) {
            with_vectors(input, dy, x, gain.gamma, residual, dx);
        } else {
            with_vectors(weight_alone, dy, x);
        }
    });
    if (dgamma) fold_pieces(ctx, partial, pieces, x.cols, totals);
}

}  // namespace vocabpipe::kernels::cuda
