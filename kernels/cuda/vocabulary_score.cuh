// SPDX-License-Identifier: Apache-2.0
// One pass over a chunk of logits: computes what S keeps of them, and the statistics of their rows.
//
// A row is short (2048 columns of a chunk at v = 16384), and a block of 256 threads would mostly
// wait on it: 8 elements per thread between barriers. So one warp takes a row, without any barrier,
// wherever there are enough rows to fill the GPU with warps; a whole block takes a row only when
// there are few tokens, whose chunks are wide.
#pragma once

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/fast_exp2.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels::cuda {

inline constexpr int kScoreThreads = 256;
/// Warps per multiprocessor that keep its memory busy, four loads of 512 bytes each in flight: 32
/// KiB, where Little's law asks for 29 (36 GB/s each of an H200's 4.8 TB/s, 0.8 us).
inline constexpr int kScoreWarpsPerSm = 16;

/// A row's reference point follows its logits only when one is this far above it: exp(30) = 1e13 is
/// harmless in fp32 and bf16, and scaling what was stored costs another pass over it.
inline constexpr float kSlack = 30;
/// Columns whose maximum is the reference point: the width of the smallest chunk.
inline constexpr int kReferenceColumns = 2048;

__device__ __forceinline__ float infinity() {
    return __int_as_float(0x7f800000);
}

/// exp(x) for x <= 30. In bf16 runs the fast one: its relative error, 2^-23 (2 + 1.2 |x|), is of
/// the size of the error from rounding a logit of size |x| to fp32.
template <typename T>
__device__ __forceinline__ float exponential(float x) {
    if constexpr (sizeof(T) == 2) {
        constexpr float kLog2E = 1.44269504F;
        return fast_exp2(x * kLog2E);
    } else {
        return expf(x);
    }
}

struct Logit {
    float z, slope;  ///< slope = dz / d(x w)
};

/// Turns a product x w into a logit; -infinity, of a token that is not allowed, stays. Two types,
/// so that the case without a cap costs one multiplication.
struct Uncapped {
    float inverse_temperature;
    __device__ __forceinline__ Logit operator()(float product) const {
        return {product * inverse_temperature, 1.0F};
    }
};

struct Softcapped {
    float cap, inverse_temperature;
    bool later;  ///< LossOptions::caps_later
    __device__ __forceinline__ Logit operator()(float product) const {
        const float tanh = tanhf(product / cap);
        const float capped = product < -FLT_MAX ? product : cap * tanh;
        return {capped * inverse_temperature, later ? 1.0F : 1.0F - tanh * tanh};
    }
};

struct Chunk {
    const float* products;  ///< (tokens, count), x w
    int64_t product_stride;
    int64_t tokens;
    int64_t begin;  ///< the shard's column at which the chunk starts
    int count;
    const int32_t* labels;
    int64_t first_row;  ///< the shard's
    float* statistics;
    int64_t statistics_stride;
    bool want_logit_sum;
    int64_t top_two;  ///< top_two_column()
    int64_t best;     ///< best_column()
    int best_count;
};

/// Results of a pass over the columns of a row: all of them, or one thread's.
struct RowPart {
    float max = 0;
    double sum = 0;  ///< of exp(z - m), without the label's
    double logit_sum = 0;
    double weighted = 0;  ///< of exp(z - m) (z - m), likewise; with kEntropy
};

/// The kThreads threads of a block that share a row: a warp, or all. Every reduction in a kernel
/// has shared memory of its own (kTag), so that a block needs one barrier for each.
template <int kThreads>
struct RowThreads {
    static_assert(kThreads == kWarpThreads || kThreads == kScoreThreads);
    static constexpr int kWarps = kScoreThreads / kWarpThreads;
    static constexpr bool kAlone = kThreads == kWarpThreads;

    [[nodiscard]] __device__ __forceinline__ static int thread() {
        return static_cast<int>(threadIdx.x) % kThreads;
    }
    [[nodiscard]] __device__ __forceinline__ static int warp() {
        return static_cast<int>(threadIdx.x) / kWarpThreads;
    }
    /// Reads with thread 0 of a warp what it will write later, which needs no barrier. A block has
    /// a barrier between the read and the write.
    [[nodiscard]] __device__ __forceinline__ static float from_first(const float* at) {
        if constexpr (kAlone) {
            return __shfl_sync(0xffffffffU, thread() == 0 ? *at : 0.0F, 0);
        } else {
            return *at;
        }
    }
    /// All threads get the maximum.
    template <int kTag>
    [[nodiscard]] __device__ __forceinline__ static float max(float value) {
        value = warp_max(value);
        if constexpr (!kAlone) {
            __shared__ float parts[kWarps];
            if (threadIdx.x % kWarpThreads == 0) parts[warp()] = value;
            __syncthreads();
            for (const float part : parts) value = fmaxf(value, part);
        }
        return value;
    }
    /// All threads get the sum, the warps' sums added in their order.
    template <int kTag, bool kEntropy>
    [[nodiscard]] __device__ __forceinline__ static RowPart reduced(RowPart mine) {
        RowPart whole{warp_max(mine.max), warp_sum(mine.sum), warp_sum(mine.logit_sum), 0};
        if constexpr (kEntropy) whole.weighted = warp_sum(mine.weighted);
        if constexpr (!kAlone) {
            __shared__ float largest[kWarps];
            __shared__ double sums[kWarps], logit_sums[kWarps], weighted[kWarps];
            if (threadIdx.x % kWarpThreads == 0) {
                largest[warp()] = whole.max;
                sums[warp()] = whole.sum;
                logit_sums[warp()] = whole.logit_sum;
                if constexpr (kEntropy) weighted[warp()] = whole.weighted;
            }
            __syncthreads();
            whole = {largest[0], sums[0], logit_sums[0], kEntropy ? weighted[0] : 0};
            for (int i = 1; i < kWarps; ++i) {
                whole.max = fmaxf(whole.max, largest[i]);
                whole.sum += sums[i];
                whole.logit_sum += logit_sums[i];
                if constexpr (kEntropy) whole.weighted += weighted[i];
            }
        }
        return whole;
    }
};

/// e = exp(z - m) dz / d(x w), the label's entry 0. One pass: a thread writes the elements that it
/// reads. The result is the thread's own part.
template <typename T, int kThreads, int kCount, bool kEntropy, typename Cap>
__device__ __forceinline__ RowPart write_exponentials(const float* __restrict__ products,
                                                      T* __restrict__ e, int count, int label,
                                                      float m, Cap logit_of) {
    constexpr int kAtOnce = 4;  // loads in flight per thread
    const int thread = RowThreads<kThreads>::thread();
    RowPart part{-infinity(), 0, 0, 0};
    float sum = 0;  // of a few terms, then added in double
    float logit_sum = 0;
    float weighted = 0;
    const auto term = [&](float product, bool is_label) {
        const Logit logit = logit_of(product);
        part.max = fmaxf(part.max, logit.z);
        logit_sum += logit.z;
        const float exponent = is_label ? 0.0F : exponential<T>(logit.z - m);
        sum += exponent;
        // The exponential is 0 below -200, and the product must be for -infinity, too.
        if constexpr (kEntropy) weighted += exponent * fmaxf(logit.z - m, -200.0F);
        return exponent * logit.slope;
    };
    const auto collect = [&] {
        part.sum += sum;
        part.logit_sum += logit_sum;
        part.weighted += weighted;
        sum = logit_sum = weighted = 0;
    };
    const int vectors = count / kCount;
    for (int first = thread; first < vectors; first += kThreads * kAtOnce) {
        Vector<kCount> values[kAtOnce];
        for (int i = 0; i < kAtOnce; ++i) {
            const int at = first + i * kThreads;
            if (at < vectors) values[i].load(products + at * kCount);
        }
        for (int i = 0; i < kAtOnce; ++i) {
            const int at = first + i * kThreads;
            if (at >= vectors) continue;
            const int place = label - at * kCount;
            if (place < 0 || place >= kCount) {  // all but one vector of a row
                for (int j = 0; j < kCount; ++j) values[i][j] = term(values[i][j], false);
            } else {
                for (int j = 0; j < kCount; ++j) values[i][j] = term(values[i][j], j == place);
            }
            values[i].store(e + at * kCount);
        }
        collect();
    }
    for (int at = vectors * kCount + thread; at < count; at += kThreads) {
        e[at] = from_float<T>(term(products[at], at == label));
    }
    collect();
    return part;
}

/// kThreads of a block's threads per token: writes this chunk's columns of exp_logits and updates
/// the statistics so far. `exp_logits` is the shard's, from column 0.
template <typename T, int kThreads, int kCount, bool kEntropy, typename Cap>
__global__ void __launch_bounds__(kScoreThreads)
    score_kernel(Chunk chunk, Cap logit_of, T* __restrict__ exp_logits, int64_t exp_logits_stride) {
    using Row = RowThreads<kThreads>;
    constexpr int kRows = kScoreThreads / kThreads;
    const int thread = Row::thread();
    const int64_t n = int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads;
    if (n >= chunk.tokens) return;  // a whole warp, or all threads of the block
    const float* const products = chunk.products + n * chunk.product_stride;
    T* const row = exp_logits + n * exp_logits_stride;
    float* const statistics = chunk.statistics + n * chunk.statistics_stride;
    const int64_t column = chunk.labels[n] - chunk.first_row - chunk.begin;
    const bool has_label = chunk.labels[n] >= 0 && column >= 0 && column < chunk.count;
    const int label = has_label ? static_cast<int>(column) : -1;
    const bool first = chunk.begin == 0;

    float m = 0;
    // Sums of the earlier chunks; thread 0 only.
    double before = 0;
    double weighted_before = 0;
    if (first) {
        float largest = -infinity();
        for (int at = thread; at < chunk.count && at < kReferenceColumns; at += kThreads) {
            largest = fmaxf(largest, products[at]);
        }
        // Finite, so that z - m is never the difference of two infinities where no token is
        // allowed.
        m = fmaxf(logit_of(Row::template max<0>(largest)).z, -FLT_MAX);
    } else {
        m = Row::from_first(statistics);
        if (thread == 0) before = statistics[1];
        if (kEntropy && thread == 0) weighted_before = statistics[kStatistics];
    }
    const auto write = [&] {
        return write_exponentials<T, kThreads, kCount, kEntropy>(products, row + chunk.begin,
                                                                 chunk.count, label, m, logit_of);
    };
    RowPart part = Row::template reduced<1, kEntropy>(write());
    if (part.max > m + kSlack) {
        const double raised = static_cast<double>(part.max) - m;
        const double factor = exp(-raised);
        for (int64_t at = thread; at < chunk.begin; at += kThreads) {
            row[at] = from_float<T>(to_float(row[at]) * static_cast<float>(factor));
        }
        weighted_before = factor * (weighted_before - before * raised);
        before *= factor;
        m = part.max;
        part = Row::template reduced<2, kEntropy>(write());
    }
    if (thread != 0) return;
    statistics[0] = m;
    statistics[1] = static_cast<float>(before + part.sum);
    if (has_label) {
        statistics[2] = logit_of(products[label]).z;
    } else if (first) {
        statistics[2] = 0;
    }
    const double logit_sum = (first ? 0.0 : statistics[3]) + part.logit_sum;
    statistics[3] = chunk.want_logit_sum ? static_cast<float>(logit_sum) : 0.0F;
    if (kEntropy) {
        statistics[kStatistics] = static_cast<float>(weighted_before + part.weighted);
    }
}

/// The two largest logits so far; equal ones count twice. NaN is ignored.
struct TopTwo {
    float first, second;

    __device__ __forceinline__ void add(float value) {
        const float lower = value > first ? first : value;
        first = value > first ? value : first;
        second = lower > second ? lower : second;
    }
    __device__ __forceinline__ void add(const TopTwo& other) {
        add(other.first);
        add(other.second);
    }
};

/// Tokens that a thread of forbid_kernel goes through.
inline constexpr int kForbiddenTokens = 64;

/// -infinity in the columns of a chunk that `allowed` forbids: a thread per column and
/// kForbiddenTokens tokens. A pass of its own, which only writes, so that training pays nothing for
/// it.
__global__ void __launch_bounds__(kScoreThreads)
    forbid_kernel(float* __restrict__ products, int64_t stride, int64_t tokens, int64_t begin,
                  int count, const uint32_t* __restrict__ allowed) {
    const int64_t columns = (count + kScoreThreads - 1) / kScoreThreads;
    const int64_t column = blockIdx.x % columns * kScoreThreads + threadIdx.x;
    if (column >= count) return;
    const int64_t at = begin + column;
    if ((allowed[at / 32] >> (at % 32) & 1U) != 0) return;
    const int64_t first = blockIdx.x / columns * kForbiddenTokens;
    for (int64_t n = first; n < tokens && n < first + kForbiddenTokens; ++n) {
        products[n * stride + column] = -infinity();
    }
}

/// A warp per token: the two largest logits of this chunk and of those before it, stored after the
/// other statistics. A separate pass over the products, so that training pays nothing for it. The
/// cap is monotonic, so it is applied to two of the products only.
template <typename Cap>
__global__ void __launch_bounds__(kScoreThreads) top_two_kernel(Chunk chunk, Cap logit_of) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int64_t n =
        int64_t{blockIdx.x} * (kScoreThreads / kWarpThreads) + threadIdx.x / kWarpThreads;
    if (n >= chunk.tokens) return;  // a whole warp
    const float* const products = chunk.products + n * chunk.product_stride;
    TopTwo top{-infinity(), -infinity()};
    for (int at = lane; at < chunk.count; at += kWarpThreads) top.add(products[at]);
    for (int step = kWarpThreads / 2; step > 0; step /= 2) {
        const TopTwo other{__shfl_xor_sync(0xffffffffU, top.first, step),
                           __shfl_xor_sync(0xffffffffU, top.second, step)};
        top.add(other);
    }
    if (lane != 0) return;
    float* const two = chunk.statistics + n * chunk.statistics_stride + chunk.top_two;
    TopTwo all{-infinity(), -infinity()};
    if (chunk.begin > 0) all = {two[0], two[1]};
    // A chunk of one column has no second.
    all.add(logit_of(top.first).z);
    if (chunk.count > 1) all.add(logit_of(top.second).z);
    two[0] = all.first;
    two[1] = all.second;
}

/// The largest logits of a row and their ids: places `lane` and `lane` + 32, in a warp's registers.
struct BestOfRow {
    static constexpr unsigned kAll = 0xffffffffU;
    float logit[2];
    float id[2];

    /// Puts a logit in front of all that are less; all lanes call it with the same arguments. An
    /// earlier column with an equal logit stays before it.
    __device__ __forceinline__ void insert(float z, float id_of_z, int lane) {
        const int place =
            warp_sum(static_cast<int>(logit[0] >= z) + static_cast<int>(logit[1] >= z));
        const float middle_logit = __shfl_sync(kAll, logit[0], kWarpThreads - 1);
        const float middle_id = __shfl_sync(kAll, id[0], kWarpThreads - 1);
        for (int half = 0; half < 2; ++half) {
            float before_logit = __shfl_up_sync(kAll, logit[half], 1);
            float before_id = __shfl_up_sync(kAll, id[half], 1);
            if (half == 1 && lane == 0) {
                before_logit = middle_logit;
                before_id = middle_id;
            }
            const int mine = lane + half * kWarpThreads;
            if (mine > place) {
                logit[half] = before_logit;
                id[half] = before_id;
            } else if (mine == place) {
                logit[half] = z;
                id[half] = id_of_z;
            }
        }
    }
    /// The logit in place i.
    [[nodiscard]] __device__ __forceinline__ float at(int i) const {
        return __shfl_sync(kAll, i < kWarpThreads ? logit[0] : logit[1], i % kWarpThreads);
    }
};
static_assert(TokenRecords::kMostBest == 2 * kWarpThreads);

/// A warp per token: the largest logits of this chunk and of those before it, and their ids. A pass
/// of its own, as top_two_kernel. Most groups of 32 columns have none of the best.
template <typename Cap>
__global__ void __launch_bounds__(kScoreThreads) best_kernel(Chunk chunk, Cap logit_of) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int64_t n =
        int64_t{blockIdx.x} * (kScoreThreads / kWarpThreads) + threadIdx.x / kWarpThreads;
    if (n >= chunk.tokens) return;  // a whole warp
    const float* const products = chunk.products + n * chunk.product_stride;
    float* const list = chunk.statistics + n * chunk.statistics_stride + chunk.best;
    const int count = chunk.best_count;
    BestOfRow best;
    for (int half = 0; half < 2; ++half) {
        const int mine = lane + half * kWarpThreads;
        const bool found = chunk.begin > 0 && mine < count;
        best.logit[half] = found ? list[mine] : -infinity();
        best.id[half] = found ? list[count + mine] : -1.0F;
    }
    float least = best.at(count - 1);
    for (int first = 0; first < chunk.count; first += kWarpThreads) {
        const int at = first + lane;
        float z = at < chunk.count ? logit_of(products[at]).z : -infinity();
        for (;;) {  // the columns that are among the best, in order
            const int from = warp_min(z > least ? lane : kWarpThreads);
            if (from == kWarpThreads) break;
            best.insert(__shfl_sync(BestOfRow::kAll, z, from),
                        static_cast<float>(chunk.first_row + chunk.begin + first + from), lane);
            least = best.at(count - 1);
            if (lane == from) z = -infinity();
        }
    }
    for (int half = 0; half < 2; ++half) {
        const int mine = lane + half * kWarpThreads;
        if (mine >= count) continue;
        list[mine] = best.logit[half];
        list[count + mine] = best.id[half];
    }
}

/// Writes z of this chunk; a block per token.
template <typename Cap>
__global__ void __launch_bounds__(kScoreThreads)
    keep_logits_kernel(Chunk chunk, Cap logit_of, float* __restrict__ logits, int64_t stride) {
    const int64_t n = blockIdx.x;
    const float* const products = chunk.products + n * chunk.product_stride;
    float* const row = logits + n * stride + chunk.begin;
    for (int at = static_cast<int>(threadIdx.x); at < chunk.count; at += kScoreThreads) {
        row[at] = logit_of(products[at]).z;
    }
}

}  // namespace vocabpipe::kernels::cuda
