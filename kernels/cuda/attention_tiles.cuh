// SPDX-License-Identifier: Apache-2.0
// Tiles of q, k, v and their gradients in shared memory, and the two kinds of products that
// attention computes from them. A block has kAttentionThreads threads; each of its warps owns
// kWarpRows rows of the block's kAttentionRows and keeps their sums in registers, laid out like c
// in kernels/cuda/mma.cuh: sums[n] are columns 8 n to 8 n + 7. bf16 goes through tensor cores, fp32
// through fused multiply-adds of the same threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/fast_exp2.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace vocabpipe::kernels::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kWarpRows = 16;
inline constexpr int kAttentionRows = kAttentionThreads / kWarpThreads * kWarpRows;

/// Minimum number of blocks per multiprocessor at a time: the compiler limits registers
/// accordingly.
template <typename T, int kCols>
inline constexpr int kBlocks = sizeof(T) == 4 || kCols > 64 ? 2 : 3;

/// Where a thread's sums lie: rows first_row and first_row + 8 of its block, columns first_column
/// and first_column + 1 of every 8.
struct Place {
    int warp_row, first_row, first_column;

    __device__ __forceinline__ static Place of_this_thread() {
        const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
        const int warp_row = static_cast<int>(threadIdx.x) / kWarpThreads * kWarpRows;
        return {warp_row, warp_row + lane / 4, lane % 4 * 2};
    }
};

/// kRows rows of kCols elements. Vectors of 16 bytes of a row are permuted, differently for 8
/// neighbouring rows, so that reading a column of them hits all banks.
template <typename T, int kRows, int kCols>
struct Tile {
    static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    static constexpr int kRowVectors = kCols / kVector;
    static constexpr int kPermuted = kRowVectors < 8 ? kRowVectors : 8;
    static_assert((kPermuted & (kPermuted - 1)) == 0 && kCols % 16 == 0);

    alignas(16) T elements[kRows * kCols];

    [[nodiscard]] __device__ __forceinline__ T* at(int row, int col) {
        return elements + offset(row, col);
    }
    [[nodiscard]] __device__ __forceinline__ const T* at(int row, int col) const {
        return elements + offset(row, col);
    }

private:
    [[nodiscard]] __device__ __forceinline__ static int offset(int row, int col) {
        const int vector = (col / kVector) ^ (row % kPermuted);
        return row * kCols + vector * kVector + col % kVector;
    }
};

/// Part of a matrix in device memory: `rows` rows, `stride` elements apart, of `cols` elements.
template <typename T>
struct Part {
    const T* data;
    int64_t stride;
    int rows, cols;
};

/// The part of a tile that each thread moves: 16-byte vectors, neighbouring ones by neighbouring
/// threads.
template <typename T, int kRows, int kCols>
struct Vectors {
    static constexpr int kLength = Tile<T, kRows, kCols>::kVector;
    static constexpr int kOfRow = Tile<T, kRows, kCols>::kRowVectors;
    static constexpr int kPerThread = (kRows * kOfRow + kAttentionThreads - 1) / kAttentionThreads;
    static_assert(kAttentionThreads % kOfRow == 0);

    [[nodiscard]] __device__ __forceinline__ static int row_of(int i) {
        return (static_cast<int>(threadIdx.x) + i * kAttentionThreads) / kOfRow;
    }
    [[nodiscard]] __device__ __forceinline__ static int col() {
        return static_cast<int>(threadIdx.x) % kOfRow * kLength;
    }
    [[nodiscard]] __device__ __forceinline__ static uint4 loaded(const Part<T>& part, int i) {
        uint4 words{};
        if (row_of(i) < part.rows && col() < part.cols) {
            words = *reinterpret_cast<const uint4*>(part.data + row_of(i) * part.stride + col());
        }
        return words;
    }
    __device__ __forceinline__ static void store(Tile<T, kRows, kCols>& tile, int i, uint4 words) {
        if (row_of(i) < kRows) *reinterpret_cast<uint4*>(tile.at(row_of(i), col())) = words;
    }
};

/// tile = part; zeros where the part ends before the tile. `vectors`: rows are read 16 bytes at a
/// time, so they must be aligned to 16 bytes and a multiple of 16 bytes long.
template <typename T, int kRows, int kCols>
__device__ __forceinline__ void copy(Tile<T, kRows, kCols>& tile, const Part<T>& part,
                                     bool vectors) {
    using Mine = Vectors<T, kRows, kCols>;
    if (vectors) {
        constexpr int kAtOnce = Mine::kPerThread < 4 ? Mine::kPerThread : 4;
#pragma unroll 1
        for (int first = 0; first < Mine::kPerThread; first += kAtOnce) {
            uint4 words[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) words[i] = Mine::loaded(part, first + i);
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) Mine::store(tile, first + i, words[i]);
        }
    } else {
#pragma unroll 1
        for (int at = static_cast<int>(threadIdx.x); at < kRows * kCols; at += kAttentionThreads) {
            const int row = at / kCols, col = at % kCols;
            const bool inside = row < part.rows && col < part.cols;
            *tile.at(row, col) = inside ? part.data[row * part.stride + col] : from_float<T>(0.0F);
        }
    }
}

/// A tile in registers on its way from device to shared memory, so that products of the previous
/// tile run meanwhile: used where rows can be read 16 bytes at a time.
template <typename T, int kRows, int kCols>
class Staged {
public:
    __device__ __forceinline__ void load(const Part<T>& part) {
#pragma unroll
        for (int i = 0; i < Mine::kPerThread; ++i) words_[i] = Mine::loaded(part, i);
    }
    __device__ __forceinline__ void store(Tile<T, kRows, kCols>& tile) const {
#pragma unroll
        for (int i = 0; i < Mine::kPerThread; ++i) Mine::store(tile, i, words_[i]);
    }

private:
    using Mine = Vectors<T, kRows, kCols>;
    uint4 words_[Mine::kPerThread];
};

/// Shared memory where lanes of a warp exchange fp32 weights; bf16 weights stay in their threads.
template <typename T, int kCols>
struct SharedWeights {};
template <int kCols>
struct SharedWeights<float, kCols> {
    Tile<float, kAttentionRows, kCols> weights;
};

/// sums += a b^T for the warp's rows of a and all kB rows of b, over their first `depth` columns;
/// columns from there to the next multiple of 16 are zero in both.
template <int kA, int kB, int kCols>
__device__ __forceinline__ void add_product(float (&sums)[kB / 8][4],
                                            const Tile<__nv_bfloat16, kA, kCols>& a,
                                            const Tile<__nv_bfloat16, kB, kCols>& b, int depth) {
    static_assert(kB % 16 == 0);
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int warp_row = Place::of_this_thread().warp_row;
    constexpr int kUnrolled = kCols < 64 ? kCols : 64;  // addresses of more would cost registers
#pragma unroll 1
    for (int first = 0; first < depth; first += kUnrolled) {
#pragma unroll
        for (int step = 0; step < kUnrolled; step += 16) {
            const int k = first + step;
            if (k >= depth) break;
            uint32_t of_a[4];
            load_matrices<false>(of_a, a.at(warp_row + lane % 16, k + lane / 16 * 8));
#pragma unroll
            for (int n = 0; n < kB; n += 16) {
                uint32_t of_b[4];  // both halves of the depth for 8 rows of b, then for the next 8
                load_matrices<false>(of_b,
                                     b.at(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
                mma(sums[n / 8], of_a, of_b[0], of_b[1]);
                mma(sums[n / 8 + 1], of_a, of_b[2], of_b[3]);
            }
        }
        if (kUnrolled == kCols) break;
    }
}

template <int kA, int kB, int kCols>
__device__ __forceinline__ void add_product(float (&sums)[kB / 8][4],
                                            const Tile<float, kA, kCols>& a,
                                            const Tile<float, kB, kCols>& b, int depth) {
    const Place place = Place::of_this_thread();
#pragma unroll 1
    for (int k = 0; k < depth; k += 4) {
        const auto low = loaded<float, 4>(a.at(place.first_row, k));
        const auto high = loaded<float, 4>(a.at(place.first_row + 8, k));
#pragma unroll
        for (int n = 0; n < kB / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const auto of_b = loaded<float, 4>(b.at(8 * n + place.first_column + e, k));
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    sums[n][e] = fmaf(low[i], of_b[i], sums[n][e]);
                    sums[n][2 + e] = fmaf(high[i], of_b[i], sums[n][2 + e]);
                }
            }
        }
    }
}

/// sums += weights b over the kB rows of b, for its first `cols` columns, and some after them.
/// bf16 rounds the weights to bf16. `shared_weights` is free from one barrier of the block to the
/// next.
template <int kB, int kCols>
__device__ __forceinline__ void add_weighted(float (&sums)[kCols / 8][4],
                                             const float (&weights)[kB / 8][4],
                                             const Tile<__nv_bfloat16, kB, kCols>& b, int cols,
                                             SharedWeights<__nv_bfloat16, kB>&) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int k = 0; k < kB; k += 16) {
        const auto& left = weights[k / 8];
        const auto& right = weights[k / 8 + 1];
        const uint32_t of_weights[4] = {bf16_pair(left[0], left[1]), bf16_pair(left[2], left[3]),
                                        bf16_pair(right[0], right[1]),
                                        bf16_pair(right[2], right[3])};
#pragma unroll
        for (int n = 0; n < kCols; n += 16) {
            if (n >= cols) break;
            uint32_t of_b[4];  // both halves of the 16 rows for 8 columns, then for the next 8
            load_matrices<true>(of_b, b.at(k + lane % 16, n + lane / 16 * 8));
            mma(sums[n / 8], of_weights, of_b[0], of_b[1]);
            mma(sums[n / 8 + 1], of_weights, of_b[2], of_b[3]);
        }
    }
}

template <int kB, int kCols>
__device__ __forceinline__ void add_weighted(float (&sums)[kCols / 8][4],
                                             const float (&weights)[kB / 8][4],
                                             const Tile<float, kB, kCols>& b, int cols,
                                             SharedWeights<float, kB>& shared_weights) {
    const Place place = Place::of_this_thread();
#pragma unroll
    for (int n = 0; n < kB / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int col = 8 * n + place.first_column + e;
            *shared_weights.weights.at(place.first_row, col) = weights[n][e];
            *shared_weights.weights.at(place.first_row + 8, col) = weights[n][2 + e];
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int k = 0; k < kB; ++k) {
        const float low = *shared_weights.weights.at(place.first_row, k);
        const float high = *shared_weights.weights.at(place.first_row + 8, k);
#pragma unroll
        for (int n = 0; n < kCols / 8; ++n) {
            if (8 * n >= cols) break;
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float of_b = *b.at(k, 8 * n + place.first_column + e);
                sums[n][e] = fmaf(low, of_b, sums[n][e]);
                sums[n][2 + e] = fmaf(high, of_b, sums[n][2 + e]);
            }
        }
    }
}

/// Writes the thread's sums, times factors of its two rows, to a matrix of `rows` rows and `cols`
/// columns; `to` is the row of the block's first row.
template <typename T, int kCols>
__device__ __forceinline__ void store_sums(const float (&sums)[kCols / 8][4],
                                           const float (&factors)[2], T* to, int64_t stride,
                                           int rows, int cols) {
    const Place place = Place::of_this_thread();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = place.first_row + 8 * half;
        if (row >= rows) continue;
#pragma unroll
        for (int n = 0; n < kCols / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int col = 8 * n + place.first_column + e;
                if (col < cols) {
                    to[row * stride + col] = from_float<T>(sums[n][2 * half + e] * factors[half]);
                }
            }
        }
    }
}

}  // namespace vocabpipe::kernels::cuda
