// SPDX-License-Identifier: Apache-2.0
// Three kernels: delta = dout . out by row; dk and dv, whose blocks hold kAttentionRows keys and
// iterate over the queries that see them; and dq, whose blocks hold queries and iterate over keys.
// Both compute scores and their gradients, seven products instead of five, so that every sum
// belongs to one block: no atomics, no sums in memory, the same order every time. Heads that share
// keys follow one another in the block of those keys.
//
// Bounds as in attention_forward.cu, for a tile of 64 keys and 32 queries, heads of 64, bf16: 256
// mma (4 products), 413 clocks on the tensor cores; 256 fragments of 256 bytes, 32 of k and v of
// 512, 8 KiB of stores and 64 shuffles of a warp, 768 clocks in shared memory: at most 316 TFLOP/s,
// about 180 expected. The same holds for dq with 3 products.
#include "kernels/cuda/attention_arguments.cuh"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kDeltaThreads = 256;
constexpr int kDeltaLanes = 8;  // lanes per row of a head

/// delta (sequence, head, query) = sum over a head's columns of dout out
template <typename T, int kCount>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_delta_kernel(AttentionScores s, Heads<const T> dout, Heads<const T> out,
                           int64_t count, float* delta) {
    const int64_t index =
        (int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / kDeltaLanes;  // (query, head)
    float sum = 0.0F;
    const int64_t row = index / s.heads;
    const int head = static_cast<int>(index % s.heads);
    if (index < count) {
        const T* left = dout.data + row * dout.stride + int64_t{head} * dout.size;
        const T* right = out.data + row * out.stride + int64_t{head} * out.size;
        for (int i = static_cast<int>(threadIdx.x) % kDeltaLanes * kCount; i < out.size;
             i += kDeltaLanes * kCount) {
            const auto a = loaded<T, kCount>(left + i);
            const auto b = loaded<T, kCount>(right + i);
            for (int j = 0; j < kCount; ++j) sum = fmaf(a[j], b[j], sum);
        }
    }
    sum = warp_sum<kDeltaLanes>(sum);
    if (index < count && threadIdx.x % kDeltaLanes == 0) {
        delta[(row / s.queries * s.heads + head) * s.queries + row % s.queries] = sum;
    }
}

template <typename T>
struct Arguments {
    AttentionScores s;
    Projections<const T> qkv;
    Heads<const T> dout;
    Projections<T> dqkv;
    const float* log_sum_exp;
    int64_t log_sum_exp_stride;
    const float* delta;
    bool vectors;
};

/// The data of a query that a block needs.
struct Query {
    float log2_sum_exp, delta;
    int first_key;  ///< beyond all keys if there is no such query

    template <typename T>
    __device__ __forceinline__ static Query of(const Arguments<T>& a, int sequence, int head,
                                               int row) {
        const int queries = a.s.queries;
        if (row >= queries) return {0.0F, 0.0F, a.s.seq_length};
        return {a.log_sum_exp[(int64_t{sequence} * queries + row) * a.log_sum_exp_stride + head] *
                    AttentionScores::kLog2E,
                a.delta[(int64_t{sequence} * a.s.heads + head) * queries + row],
                a.s.first_key(sequence, row)};
    }
    /// The data of a lane's query, token `query` of the sequence; arbitrary beyond the sequence.
    [[nodiscard]] __device__ __forceinline__ Query of_lane(const AttentionScores& s, int lane,
                                                           int query) const {
        return {__shfl_sync(0xffffffffU, log2_sum_exp, lane), __shfl_sync(0xffffffffU, delta, lane),
                s.first_visible == nullptr ? query + 1 - s.window
                                           : __shfl_sync(0xffffffffU, first_key, lane)};
    }
};

/// Rows per tile of the side over which a block iterates: as many as fit into shared memory (48
/// KiB) next to its own rows, and into registers next to the sums of dk and dv; fewer for the
/// narrow heads of small models, whose sequences are short.
template <typename T, int kCols, bool kOfKeys>
inline constexpr int kPassingRows = kCols == 16 || sizeof(T) == 4 || (kOfKeys && kCols > 64) ? 16
                                                                                             : 32;

/// dq, or dk and dv, of kAttentionRows rows of a head. The block's own rows are queries (q and
/// dout), and it iterates over keys (k and v); or the other way round.
template <typename T, int kCols, bool kOfKeys>
__global__ void __launch_bounds__(kAttentionThreads, (kOfKeys ? 2 : kBlocks<T, kCols>))
    attention_gradient_kernel(Arguments<T> a) {
    constexpr int kPassing = kPassingRows<T, kCols, kOfKeys>;
    constexpr int kPerLane = (kPassing + kWarpThreads - 1) / kWarpThreads;
    __shared__ Tile<T, kAttentionRows, kCols> own, own_values;    // of q or k, of dout or v
    __shared__ Tile<T, kPassing, kCols> passing, passing_values;  // of k or q, of v or dout
    __shared__ SharedWeights<T, kPassing> shared_weights, shared_weights_of_values;

    const AttentionScores& s = a.s;
    const int own_rows = kOfKeys ? s.seq_length : s.queries;
    const int tiles = (own_rows + kAttentionRows - 1) / kAttentionRows;
    const int tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles));
    // The first keys are seen by the most queries, the last queries see the most keys: these start
    // first.
    const int first = (kOfKeys ? tile : tiles - 1 - tile) * kAttentionRows;
    const int pair = static_cast<int>(blockIdx.x / static_cast<unsigned>(tiles));
    const int heads = kOfKeys ? s.kv_heads : s.heads;
    const int head = pair % heads;
    const int sequence = pair / heads;
    const int key_size = a.qkv.k.size, value_size = a.qkv.v.size;
    const int chunks = (max(key_size, value_size) + kCols - 1) / kCols;
    const int own_chunk = static_cast<int>(blockIdx.y);

    const Place place = Place::of_this_thread();
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;

    // Rows from `begin` to `end` pass. The tokens of the block's first row, and of row 0 of those
    // that pass:
    const int first_token = kOfKeys ? first : s.first_query + first;
    const int passing_token = kOfKeys ? s.first_query : 0;
    Query own_query[2];
    int begin, end, turns = 1;
    if constexpr (kOfKeys) {
        begin = max(0, first - s.first_query);
        end = static_cast<int>(min(int64_t{s.queries},
                                   int64_t{first} + kAttentionRows - 1 + s.window - s.first_query));
        turns = s.sharers();
    } else {
        begin = first_token;
        end = min(first_token + kAttentionRows, s.seq_length);
        for (int half = 0; half < 2; ++half) {
            own_query[half] = Query::of(a, sequence, head, first + place.first_row + 8 * half);
        }
        for (int row = lane; row < kAttentionRows; row += kWarpThreads) {
            if (first + row < s.queries) begin = min(begin, s.first_key(sequence, first + row));
        }
        begin = max(0, warp_min(begin)) / kPassing * kPassing;
    }

    // The next tile: rows from `at` of the current head.
    int turn = 0, at = begin;
    Query passing_queries[kPerLane];
    const auto query_head = [&] { return kOfKeys ? head * turns + turn : head; };
    /// Skips to the next tile with a query that sees one of the keys, unless `at` is one.
    const auto skip_hidden = [&] {
        if constexpr (kOfKeys) {
            for (; turn < turns; ++turn, at = begin) {
                for (; at < end; at += kPassing) {
                    int least = s.seq_length;
#pragma unroll
                    for (int i = 0; i < kPerLane; ++i) {
                        const int row = i * kWarpThreads + lane;
                        passing_queries[i] = Query::of(a, sequence, query_head(),
                                                       row < kPassing ? at + row : s.queries);
                        least = min(least, passing_queries[i].first_key);
                    }
                    if (s.first_visible == nullptr || warp_min(least) < first + kAttentionRows) {
                        return;
                    }
                }
            }
        }
    };
    const auto advance = [&] {
        at += kPassing;
        if constexpr (kOfKeys) {
            skip_hidden();
        } else {
            if (at >= end) turn = 1;
        }
    };

    // Tiles pass through registers, unless rows are too short or badly aligned.
    Staged<T, kPassing, kCols> next, next_values;
    const auto part = [&](const Heads<const T>& of, int chunk) {
        const int of_head = kOfKeys ? query_head() : head / s.sharers();
        return of.template part<kPassing, kCols>(sequence, of_head, at, chunk * kCols);
    };
    const Heads<const T>& passes = kOfKeys ? a.qkv.q : a.qkv.k;
    const Heads<const T>& values_pass = kOfKeys ? a.dout : a.qkv.v;
    const auto load_next = [&](int chunk) {
        if (a.vectors) {
            next.load(part(passes, chunk));
            next_values.load(part(values_pass, chunk));
        }
    };
    const auto store_next = [&](int chunk) {
        if (a.vectors) {
            next.store(passing);
            next_values.store(passing_values);
        } else {
            copy(passing, part(passes, chunk), false);
            copy(passing_values, part(values_pass, chunk), false);
        }
    };
    const auto load_own = [&](int chunk) {
        const auto own_part = [&](const Heads<const T>& of) {
            return of.template part<kAttentionRows, kCols>(sequence, head, first, chunk * kCols);
        };
        copy(own, own_part(kOfKeys ? a.qkv.k : a.qkv.q), a.vectors);
        copy(own_values, own_part(kOfKeys ? a.qkv.v : a.dout), a.vectors);
    };

    if (chunks == 1) load_own(0);
    skip_hidden();
    // The chunk of the block's own results comes last, because the results need its tiles.
    const int first_chunk = (own_chunk + 1) % chunks;
    if (turn < turns) load_next(first_chunk);
    float sums[kCols / 8][4] = {};                          // dq or dk
    float sums_of_values[kOfKeys ? kCols / 8 : 1][4] = {};  // dv
    while (turn < turns) {
        float scores[kPassing / 8][4] = {}, gradients[kPassing / 8][4] = {};
        const int now = at;
        // Whether one of the warp's rows may see, or be seen by, a row of this tile.
        const int warp_first = first + place.warp_row;
        const int warp_token = first_token + place.warp_row, now_token = passing_token + now;
        const bool sees = warp_first < own_rows && (kOfKeys ? warp_token < now_token + kPassing
                                                            : now_token < warp_token + kWarpRows);
        Query queries[kPerLane];
        for (int chunk = first_chunk;;) {
            __syncthreads();  // the previous tiles have been read
            if (chunks > 1) load_own(chunk);
            store_next(chunk);
            const bool last = chunk == own_chunk;
            // The narrower of keys and values may have no columns left.
            const int depth = min(kCols, key_size - chunk * kCols);
            const int value_depth = min(kCols, value_size - chunk * kCols);
            if (last) {
#pragma unroll
                for (int i = 0; i < kPerLane; ++i) queries[i] = passing_queries[i];
                advance();
                chunk = first_chunk;
            } else {
                chunk = (chunk + 1) % chunks;
            }
            if (turn < turns) load_next(chunk);
            __syncthreads();
            if (sees) {
                add_product(scores, own, passing, depth);
                add_product(gradients, own_values, passing_values, value_depth);
            }
            if (last) break;
        }
        if (!sees) continue;
        s.cap(scores);
        const float factor = s.factor * AttentionScores::kLog2E;
#pragma unroll
        for (int n = 0; n < kPassing / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int col = 8 * n + place.first_column + e;
                Query passing_query;
                if constexpr (kOfKeys) {
                    passing_query = queries[n * 8 / kWarpThreads].of_lane(s, col % kWarpThreads,
                                                                          now_token + col);
                }
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int own_token = first_token + place.first_row + 8 * half;
                    const int key = kOfKeys ? own_token : now_token + col;
                    const int token = kOfKeys ? now_token + col : own_token;
                    const Query& query = kOfKeys ? passing_query : own_query[half];
                    float& score = scores[n][2 * half + e];
                    float& gradient = gradients[n][2 * half + e];
                    // Queries that are not causal are beyond the last key. A block's own rows
                    // beyond it are not stored.
                    const bool exists = kOfKeys || key < s.seq_length;
                    const bool seen = key >= query.first_key && key <= token && exists;
                    const float slope = s.capped ? s.scale * (1.0F - score * score) : s.scale;
                    score = seen ? fast_exp2(fmaf(factor, score, -query.log2_sum_exp)) : 0.0F;
                    gradient = seen ? score * (gradient - query.delta) * slope : 0.0F;
                }
            }
        }
        if constexpr (kOfKeys) {
            add_weighted(sums_of_values, scores, passing_values, value_size - own_chunk * kCols,
                         shared_weights_of_values);
        }
        add_weighted(sums, gradients, passing, key_size - own_chunk * kCols, shared_weights);
    }

    const float one[2] = {1.0F, 1.0F};
    const int column = own_chunk * kCols;
    const auto store = [&](const auto& of, const Heads<T>& to) {
        store_sums<T, kCols>(of, one, to.at(sequence, head, first, column), to.stride,
                             own_rows - first, to.size - column);
    };
    if constexpr (kOfKeys) {
        store(sums, a.dqkv.k);
        store(sums_of_values, a.dqkv.v);
    } else {
        store(sums, a.dqkv.q);
    }
}

}  // namespace

int64_t attention_backward_bytes(const AttentionShape& shape) {
    return shape.query_tokens() * shape.heads * size_of(DType::fp32);
}

void attention_backward(CallSite ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                        ConstTensor out, ConstTensor log_sum_exp, const AttentionShape& shape,
                        std::span<const int32_t> first_visible, Tensor dq, Tensor dkv,
                        std::span<std::byte> workspace) {
    auto* delta = reinterpret_cast<float*>(workspace.data());
    const AttentionScores scores(shape, first_visible);
    with_attention_tiles(q.dtype, shape, [&]<typename T, int kCols>() {
        const auto gradients = query_heads<const T>(dout, shape);
        const auto results = query_heads<const T>(out, shape);
        const int64_t count = shape.query_tokens() * shape.heads;
        launch(ctx,
               heads_are_aligned<__nv_bfloat16>(shape, dout, out) ? attention_delta_kernel<T, 8>
                                                                  : attention_delta_kernel<T, 1>,
               dim3(blocks_for(count * kDeltaLanes, kDeltaThreads)), dim3(kDeltaThreads), scores,
               gradients, results, count, delta);
        const Arguments<T> arguments{.s = scores,
                                     .qkv = {q, kv, shape},
                                     .dout = gradients,
                                     .dqkv = {dq, dkv, shape},
                                     .log_sum_exp = log_sum_exp.as<float>(),
                                     .log_sum_exp_stride = log_sum_exp.stride,
                                     .delta = delta,
                                     .vectors = heads_are_aligned<T>(shape, q, kv, dout)};
        launch(ctx, attention_gradient_kernel<T, kCols, true>,
               attention_grid(shape, shape.seq_length, shape.kv_heads, widest_head(shape), kCols),
               dim3(kAttentionThreads), arguments);
        launch(ctx, attention_gradient_kernel<T, kCols, false>,
               attention_grid(shape, shape.query_count(), shape.heads, shape.head_size, kCols),
               dim3(kAttentionThreads), arguments);
    });
}

}  // namespace vocabpipe::kernels::cuda
