// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_checks.hpp"
#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"

#include <algorithm>
#include <cmath>

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kMostColumns = 8;  ///< per lane: heads of up to 256

template <typename T>
struct Arguments {
    const T* q;
    const T* kv;
    const T* sinks;  ///< [head], or null
    T* out;
    int64_t q_stride, kv_stride, out_stride;
    int64_t keys;     ///< tokens of the sequence
    int64_t queries;  ///< the last tokens of them
    int head_size, value_size, queries_per_key;
    int64_t key_columns, window;
    float scale, softcap;
};

/// Sums of a warp over its keys so far: exponentials of scores, relative to the largest.
template <int kColumns>
struct Seen {
    float largest = -INFINITY;
    float total = 0.0F;
    float values[kColumns] = {};  ///< of v, weighted

    __device__ __forceinline__ void scale_to(float reference) {
        const float factor = largest == -INFINITY ? 0.0F : expf(largest - reference);
        total *= factor;
        for (int c = 0; c < kColumns; ++c) values[c] *= factor;
        largest = reference;
    }
};

/// A block per query and head. Its warps take keys in turn, a lane the columns lane, lane + 32, ...
template <typename T, int kColumns>
__global__ void __launch_bounds__(kThreads) cached_attention_kernel(Arguments<T> a) {
    __shared__ float largest_of[kWarps];
    __shared__ float total_of[kWarps];
    __shared__ float values_of[kWarps][kColumns * kWarpThreads];
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int64_t n = blockIdx.y;
    const int head = static_cast<int>(blockIdx.x);
    const int64_t end = a.keys - a.queries + n + 1;
    const int64_t first = a.window > 0 && end > a.window ? end - a.window : 0;
    const int64_t kv_head = head / a.queries_per_key;
    const T* k = a.kv + kv_head * a.head_size;
    const T* v = a.kv + a.key_columns + kv_head * a.value_size;

    float q[kColumns];
    for (int c = 0; c < kColumns; ++c) {
        const int col = c * kWarpThreads + lane;
        q[c] = col < a.head_size ? to_float(a.q[n * a.q_stride + int64_t{head} * a.head_size + col])
                                 : 0.0F;
    }
    Seen<kColumns> seen;
    for (int64_t key = first + warp; key < end; key += kWarps) {
        float product = 0.0F;
        for (int c = 0; c < kColumns; ++c) {
            const int col = c * kWarpThreads + lane;
            if (col < a.head_size) product += q[c] * to_float(k[key * a.kv_stride + col]);
        }
        float score = warp_sum(product) * a.scale;
        if (a.softcap > 0.0F) score = a.softcap * tanhf(score / a.softcap);
        if (score > seen.largest) seen.scale_to(score);
        const float p = expf(score - seen.largest);
        seen.total += p;
        for (int c = 0; c < kColumns; ++c) {
            const int col = c * kWarpThreads + lane;
            if (col < a.value_size) seen.values[c] += p * to_float(v[key * a.kv_stride + col]);
        }
    }
    if (lane == 0) {
        largest_of[warp] = seen.largest;
        total_of[warp] = seen.total;
    }
    for (int c = 0; c < kColumns; ++c) values_of[warp][c * kWarpThreads + lane] = seen.values[c];
    __syncthreads();
    float largest = largest_of[0];
    for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, largest_of[w]);
    float total = a.sinks == nullptr ? 0.0F : expf(to_float(a.sinks[head]) - largest);
    float factors[kWarps];
    for (int w = 0; w < kWarps; ++w) {
        factors[w] = expf(largest_of[w] - largest);  // 0 for a warp without keys
        total += factors[w] * total_of[w];
    }
    for (int col = static_cast<int>(threadIdx.x); col < a.value_size; col += kThreads) {
        float value = 0.0F;
        for (int w = 0; w < kWarps; ++w) value += factors[w] * values_of[w][col];
        a.out[n * a.out_stride + int64_t{head} * a.value_size + col] = from_float<T>(value / total);
    }
}

}  // namespace

void cached_attention_forward(Context& ctx, ConstTensor q, ConstTensor kv, ConstTensor sinks,
                              const AttentionShape& shape, Tensor out) {
    require_cached_attention(q, kv, sinks, shape, out);
    const int64_t widest = std::max(shape.head_size, shape.value_size());
    require(widest <= int64_t{kMostColumns} * kWarpThreads, "heads of at most 256 columns");
    require(q.rows <= 65535, "at most 65535 rows of q");
    if (q.size() == 0) return;
    with_element_type(q.dtype, [&]<typename T>() {
        const Arguments<T> arguments{
            .q = q.as<T>(),
            .kv = kv.as<T>(),
            .sinks = sinks ? sinks.as<T>() : nullptr,
            .out = out.as<T>(),
            .q_stride = q.stride,
            .kv_stride = kv.stride,
            .out_stride = out.stride,
            .keys = shape.seq_length,
            .queries = q.rows,
            .head_size = static_cast<int>(shape.head_size),
            .value_size = static_cast<int>(shape.value_size()),
            .queries_per_key = static_cast<int>(shape.heads / shape.kv_heads),
            .key_columns = shape.key_columns(),
            .window = shape.window,
            .scale = shape.scale != 0 ? shape.scale
                                      : 1.0F / std::sqrt(static_cast<float>(shape.head_size)),
            .softcap = shape.softcap};
        const dim3 blocks(static_cast<unsigned>(shape.heads), static_cast<unsigned>(q.rows));
        const auto run = [&]<int kColumns>() {
            launch(ctx, cached_attention_kernel<T, kColumns>, blocks, dim3(kThreads), arguments);
        };
        if (widest <= 2 * kWarpThreads) {
            run.template operator()<2>();
        } else if (widest <= 4 * kWarpThreads) {
            run.template operator()<4>();
        } else {
            run.template operator()<kMostColumns>();
        }
    });
}

}  // namespace vocabpipe::kernels::cuda
