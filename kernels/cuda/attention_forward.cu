// SPDX-License-Identifier: Apache-2.0
// One kernel: each block holds kAttentionRows queries of a head and iterates over the keys that
// they see, with an online softmax, so that no score leaves the registers.
//
// Its bounds, counted for a tile of 64 queries, 64 keys and heads of 64 in bf16, in clocks of a
// multiprocessor of an H200 (not measured):
//   tensor cores     256 mma of 4096 FLOP at 0.62 of the 4096 FLOP per clock that Hopper's own
//                    instructions reach                                                   413
//   shared memory    256 fragments of k and v of 256 bytes, 16 of q of 512, 16 KiB of stores,
//                    at 128 bytes per clock                                               704
//   exp2             4096 at 16 per clock                                                 256
//   other arithmetic about 10 instructions for each score at 128 per clock                320
// The largest of them allows 345 TFLOP/s on 132 multiprocessors at 1.75 GHz, 0.35 of the peak. Work
// that does not overlap should leave about 200. Two row tiles per warp would halve the fragments'
// share.
#include <cmath>

#include "kernels/cuda/attention_arguments.cuh"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

/// Keys per tile: as many as fit with their scores into the registers next to the sums; fewer for
/// the narrow heads of small models, whose sequences are short.
template <typename T, int kCols>
inline constexpr int kKeys = kCols == 16                    ? 16
                             : sizeof(T) == 4 || kCols > 64 ? 32
                                                            : 64;

/// Maximum over the four lanes that hold a row.
__device__ __forceinline__ float row_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

/// Softmax of a row over the keys so far. Weights are relative to `largest`.
template <int kTiles>
struct OnlineSoftmax {
    float largest[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0.0F, 0.0F};  ///< of this thread's columns

    /// scores -> weights; the caller multiplies earlier sums by `decay`.
    __device__ __forceinline__ void take(float (&scores)[kTiles][4], float factor,
                                         float (&decay)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = -INFINITY;
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
                most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
            }
            most = fmaxf(largest[half], row_max(most));
            // A row that has seen no key yet has weights of 0.
            const float reference = most == -INFINITY ? 0.0F : most;
            decay[half] = fast_exp2(factor * (largest[half] - reference));
            largest[half] = most;
            float added = 0.0F;
#pragma unroll
            for (int n = 0; n < kTiles; ++n) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& score = scores[n][2 * half + e];
                    score = fast_exp2(factor * (score - reference));
                    added += score;
                }
            }
            sum[half] = sum[half] * decay[half] + added;
        }
    }
};

template <typename T>
struct Arguments {
    AttentionScores s;
    Projections<const T> qkv;
    Heads<T> out;
    float* log_sum_exp;
    int64_t log_sum_exp_stride;
    bool vectors;
};

template <typename T, int kCols>
__global__ void __launch_bounds__(kAttentionThreads, (kBlocks<T, kCols>))
    attention_forward_kernel(Arguments<T> a) {
    constexpr int kTileKeys = kKeys<T, kCols>;
    __shared__ Tile<T, kAttentionRows, kCols> queries;
    __shared__ Tile<T, kTileKeys, kCols> keys;
    __shared__ Tile<T, kTileKeys, kCols> values;
    __shared__ SharedWeights<T, kTileKeys> shared_weights;

    const AttentionScores& s = a.s;
    const int tiles = (s.queries + kAttentionRows - 1) / kAttentionRows;
    // The last queries see the most keys: they start first.
    const int first_row =
        (tiles - 1 - static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles))) * kAttentionRows;
    const int pair = static_cast<int>(blockIdx.x / static_cast<unsigned>(tiles));
    const int head = pair % s.heads;
    const int sequence = pair / s.heads;
    const int kv_head = head / s.sharers();
    const int chunks = (a.qkv.q.size + kCols - 1) / kCols;
    const int column = static_cast<int>(blockIdx.y) * kCols;

    const Place place = Place::of_this_thread();
    // Tokens of the block's first query and of the thread's first one, whose other is the eighth
    // after it. They see keys up to their own, if there are so many.
    const int first_query = s.first_query + first_row;
    const int query = first_query + place.first_row;
    int seen_from[2];
    int begin = first_query;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + place.first_row + 8 * half;
        seen_from[half] = row < s.queries ? s.first_key(sequence, row) : 0;
    }
    for (int row = static_cast<int>(threadIdx.x) % kWarpThreads; row < kAttentionRows;
         row += kWarpThreads) {
        if (first_row + row < s.queries) {
            begin = min(begin, s.first_key(sequence, first_row + row));
        }
    }
    begin = max(0, warp_min(begin)) / kTileKeys * kTileKeys;
    const int end = min(first_query + kAttentionRows, s.seq_length);

    const auto load_queries = [&](int col) {
        copy(queries, a.qkv.q.template part<kAttentionRows, kCols>(sequence, head, first_row, col),
             a.vectors);
    };
    // Rows of k and v pass through registers, unless they are too short or badly aligned.
    Staged<T, kTileKeys, kCols> next;
    const auto part = [&](const Heads<const T>& of, int key, int col) {
        return of.template part<kTileKeys, kCols>(sequence, kv_head, key, col);
    };
    const auto load_next = [&](const Heads<const T>& of, int key, int col) {
        if (a.vectors) next.load(part(of, key, col));
    };
    const auto store_next = [&](auto& tile, const Heads<const T>& of, int key, int col) {
        if (a.vectors) {
            next.store(tile);
        } else {
            copy(tile, part(of, key, col), false);
        }
    };

    if (chunks == 1) load_queries(0);
    load_next(a.qkv.k, begin, 0);
    OnlineSoftmax<kTileKeys / 8> softmax;
    float sums[kCols / 8][4] = {};
    for (int key = begin; key < end; key += kTileKeys) {
        float scores[kTileKeys / 8][4] = {};
        // Whether the warp has a query that is not before all these keys.
        const bool sees = first_row + place.warp_row < s.queries &&
                          key < first_query + place.warp_row + kWarpRows;
        for (int chunk = 0; chunk < chunks; ++chunk) {
            if (chunk > 0) {
                __syncthreads();  // the previous chunk has been read
                load_next(a.qkv.k, key, chunk * kCols);
            }
            if (chunks > 1) load_queries(chunk * kCols);
            store_next(keys, a.qkv.k, key, chunk * kCols);
            if (chunk + 1 == chunks) load_next(a.qkv.v, key, column);
            __syncthreads();
            if (sees) add_product(scores, queries, keys, min(kCols, a.qkv.q.size - chunk * kCols));
        }
        if (sees) {
            s.cap(scores);
            if (key + kTileKeys - 1 > query || key + kTileKeys > s.seq_length ||
                key < max(seen_from[0], seen_from[1])) {
#pragma unroll
                for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int at = key + 8 * n + place.first_column + i % 2;
                        if (at < seen_from[i / 2] || at > query + i / 2 * 8 || at >= s.seq_length) {
                            scores[n][i] = -INFINITY;
                        }
                    }
                }
            }
            float decay[2];
            softmax.take(scores, s.factor * AttentionScores::kLog2E, decay);
#pragma unroll
            for (int n = 0; n < kCols / 8; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[n][i] *= decay[i / 2];
            }
        }
        store_next(values, a.qkv.v, key, column);
        if (key + kTileKeys < end) load_next(a.qkv.k, key + kTileKeys, 0);
        __syncthreads();
        if (sees) add_weighted(sums, scores, values, a.out.size - column, shared_weights);
    }

    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = warp_sum<4>(softmax.sum[half]);
        inverse[half] = 1.0F / sum;
        const int row = first_row + place.first_row + 8 * half;
        if (column == 0 && place.first_column == 0 && row < s.queries) {
            a.log_sum_exp[(int64_t{sequence} * s.queries + row) * a.log_sum_exp_stride + head] =
                s.factor * softmax.largest[half] + logf(sum);
        }
    }
    store_sums<T, kCols>(sums, inverse, a.out.at(sequence, head, first_row, column), a.out.stride,
                         s.queries - first_row, a.out.size - column);
}

}  // namespace

void attention_forward(CallSite ctx, ConstTensor q, ConstTensor kv, const AttentionShape& shape,
                       std::span<const int32_t> first_visible, Tensor out, Tensor log_sum_exp) {
    with_attention_tiles(q.dtype, shape, [&]<typename T, int kCols>() {
        const Arguments<T> arguments{.s = {shape, first_visible},
                                     .qkv = {q, kv, shape},
                                     .out = query_heads<T>(out, shape),
                                     .log_sum_exp = log_sum_exp.as<float>(),
                                     .log_sum_exp_stride = log_sum_exp.stride,
                                     .vectors = heads_are_aligned<T>(shape, q, kv)};
        launch(ctx, attention_forward_kernel<T, kCols>,
               attention_grid(shape, shape.query_count(), shape.heads, shape.value_size(), kCols),
               dim3(kAttentionThreads), arguments);
    });
}

}  // namespace vocabpipe::kernels::cuda
