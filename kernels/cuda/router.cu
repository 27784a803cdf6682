// SPDX-License-Identifier: Apache-2.0
// A warp per token. Expert e belongs to lane e % 32: only that lane accesses e's data, except where
// groups are compared.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/expert_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpThreads;
constexpr int kMostExperts = 512;  ///< limit of shared memory and of the bits of Taken
/// Sums over tokens add blocks of this many, in order.
constexpr int kTokensPerBlock = 64;
constexpr float kSmallestSum = 1e-20F;

struct Best {
    float key;
    int index;  ///< negative: none
};

/// The greater key; for equal keys, and for NaN, the smaller index.
__device__ __forceinline__ Best better(const Best& a, const Best& b) {
    if (b.index < 0) return a;
    if (a.index < 0 || b.key > a.key) return b;
    if (a.key > b.key) return a;
    return a.index < b.index ? a : b;
}

/// Experts of a lane that are no candidates: bit i is for expert lane + 32 i.
using Taken = uint32_t;

__device__ __forceinline__ void take(Taken& taken, int index) {
    if (index % kWarpThreads == static_cast<int>(threadIdx.x) % kWarpThreads) {
        taken |= Taken{1} << (index / kWarpThreads);
    }
}

/// The best of the keys that are not taken; all lanes get it.
__device__ __forceinline__ int best_of(const float* keys, Taken taken, int count) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    Best best{0, -1};
    for (int i = lane; i < count; i += kWarpThreads) {
        if ((taken >> (i / kWarpThreads) & 1U) == 0) best = better(best, {keys[i], i});
    }
    for (int step = kWarpThreads / 2; step > 0; step /= 2) {
        const Best other{__shfl_xor_sync(0xffffffffU, best.key, step),
                         __shfl_xor_sync(0xffffffffU, best.index, step)};
        best = better(best, other);
    }
    return __shfl_sync(0xffffffffU, best.index, 0);
}

struct Scores {
    RouterScore kind;
    float log_z;

    __device__ __forceinline__ float operator()(float z) const {
        return kind == RouterScore::softmax ? expf(z - log_z) : 1.0F / (1.0F + expf(-z));
    }
};

struct ForwardArguments {
    const float* logits;
    int64_t logits_stride;
    const float* bias;  ///< or null
    int64_t tokens;
    int experts;
    RouterOptions options;
    int32_t* choice;
    float* weights;
    int64_t weights_stride;
    float* log_z;
    int64_t log_z_stride;
    float* partial;  ///< (blocks, 2 experts): sums of scores, then loads
};

/// A warp's shared memory for its token.
struct TokenMemory {
    float keys[kMostExperts];
    float group_values[kMostExperts];
    int group_is_open[kMostExperts];
};

/// Marks the experts of groups that are not among the best as taken.
__device__ Taken experts_of_other_groups(TokenMemory& memory, const RouterOptions& options,
                                         int experts) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int groups = static_cast<int>(options.groups);
    const int size = experts / groups;
    __syncwarp();  // keys of other lanes
    for (int group = lane; group < groups; group += kWarpThreads) {
        const float* own = memory.keys + group * size;
        float first = own[0], second = -INFINITY;
        for (int i = 1; i < size; ++i) {
            second = own[i] > first ? first : own[i] > second ? own[i] : second;
            first = own[i] > first ? own[i] : first;
        }
        memory.group_values[group] = size > 1 ? first + second : first;
        memory.group_is_open[group] = 0;
    }
    Taken chosen_groups = 0;
    for (int64_t i = 0; i < options.top_groups; ++i) {
        const int best = best_of(memory.group_values, chosen_groups, groups);
        take(chosen_groups, best);
        if (best % kWarpThreads == lane) memory.group_is_open[best] = 1;
    }
    __syncwarp();
    Taken closed = 0;
    for (int e = lane; e < experts; e += kWarpThreads) {
        if (memory.group_is_open[e / size] == 0) take(closed, e);
    }
    return closed;
}

__global__ void __launch_bounds__(kThreads) router_forward_kernel(ForwardArguments a) {
    __shared__ TokenMemory memory_of[kWarps];
    __shared__ float score_sums[kWarps][kMostExperts];
    __shared__ float loads[kWarps][kMostExperts];
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    TokenMemory& memory = memory_of[warp];
    for (int e = lane; e < a.experts; e += kWarpThreads) {
        score_sums[warp][e] = 0;
        loads[warp][e] = 0;
    }
    const int64_t first = int64_t{blockIdx.x} * kTokensPerBlock;
    const int64_t end = first + kTokensPerBlock < a.tokens ? first + kTokensPerBlock : a.tokens;
    const int k = static_cast<int>(a.options.top_k);
    const bool in_groups = a.options.top_groups < a.options.groups;
    for (int64_t n = first + warp; n < end; n += kWarps) {
        const float* const z = a.logits + n * a.logits_stride;
        float max = -INFINITY, sum = 0, all = 0;
        for (int e = lane; e < a.experts; e += kWarpThreads) max = fmaxf(max, z[e]);
        max = warp_max(max);
        for (int e = lane; e < a.experts; e += kWarpThreads) sum += expf(z[e] - max);
        const Scores score{a.options.score, max + logf(warp_sum(sum))};
        if (lane == 0) a.log_z[n * a.log_z_stride] = score.log_z;

        for (int e = lane; e < a.experts; e += kWarpThreads) {
            const float own = score(z[e]);
            all += own;
            memory.keys[e] = a.bias != nullptr ? own + a.bias[e] : in_groups ? own : z[e];
        }
        all = a.options.score == RouterScore::softmax ? 1 : warp_sum(all) + kSmallestSum;
        for (int e = lane; e < a.experts; e += kWarpThreads) {
            score_sums[warp][e] += score(z[e]) / all;
        }

        Taken taken = in_groups ? experts_of_other_groups(memory, a.options, a.experts) : 0;
        float chosen_sum = 0;
        for (int j = 0; j < k; ++j) {
            const int e = best_of(memory.keys, taken, a.experts);
            const float chosen_score = score(z[e]);
            chosen_sum += chosen_score;
            take(taken, e);
            if (e % kWarpThreads == lane) {
                loads[warp][e] += 1;
                a.choice[n * k + j] = e;
                a.weights[n * a.weights_stride + j] = chosen_score;
            }
        }
        const float divisor = a.options.normalize ? chosen_sum + kSmallestSum : 1.0F;
        __syncwarp();  // the chosen scores
        for (int j = lane; j < k; j += kWarpThreads) {
            float& weight = a.weights[n * a.weights_stride + j];
            weight = weight / divisor * a.options.scaling;
        }
    }
    __syncthreads();
    float* const partial = a.partial + int64_t{blockIdx.x} * 2 * a.experts;
    for (int e = static_cast<int>(threadIdx.x); e < a.experts; e += kThreads) {
        float score_sum = 0, load = 0;
        for (int w = 0; w < kWarps; ++w) {
            score_sum += score_sums[w][e];
            load += loads[w][e];
        }
        partial[e] = score_sum;
        partial[a.experts + e] = load;
    }
}

__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(const float* __restrict__ partial, int64_t blocks, int experts,
                        float* __restrict__ score_sums, float* __restrict__ load) {
    const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (column >= 2 * experts) return;
    double sum = 0;
    for (int64_t block = 0; block < blocks; ++block) {
        sum += static_cast<double>(partial[block * 2 * experts + column]);
    }
    (column < experts ? score_sums[column] : load[column - experts]) = static_cast<float>(sum);
}

struct BackwardArguments {
    const float* logits;
    int64_t logits_stride;
    const float* log_z;
    int64_t log_z_stride;
    const int32_t* choice;
    const float* dweights;
    int64_t dweights_stride;
    const float* load;
    int64_t tokens;
    int experts;
    RouterOptions options;
    RouterLossScales scales;
    float* dlogits;
    int64_t dlogits_stride;
};

__global__ void __launch_bounds__(kThreads) router_backward_kernel(BackwardArguments a) {
    __shared__ float ds_of[kWarps][kMostExperts];  // d loss / d score
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    float* const ds = ds_of[threadIdx.x / kWarpThreads];
    const int k = static_cast<int>(a.options.top_k);
    const bool softmax = a.options.score == RouterScore::softmax;
    const int64_t warps = int64_t{gridDim.x} * kWarps;
    for (int64_t n = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads; n < a.tokens;
         n += warps) {
        const float* const z = a.logits + n * a.logits_stride;
        const float* const dw = a.dweights + n * a.dweights_stride;
        const int32_t* const chosen = a.choice + n * k;
        const Scores score{a.options.score, a.log_z[n * a.log_z_stride]};

        // First the part of load balancing, then that of the weights.
        float total = 1, balance = 0;
        if (!softmax) {
            float scores = 0, weighted = 0;
            for (int e = lane; e < a.experts; e += kWarpThreads) {
                const float own = score(z[e]);
                scores += own;
                weighted += own * a.load[e];
            }
            total = warp_sum(scores) + kSmallestSum;
            balance = warp_sum(weighted) / total;
        }
        const float factor = a.scales.balance / total;
        for (int e = lane; e < a.experts; e += kWarpThreads) {
            ds[e] = factor * (a.load[e] - balance);
        }
        float sum = 0, inner = 0;
        for (int j = lane; j < k; j += kWarpThreads) {
            const float own = score(z[chosen[j]]);
            sum += own;
            inner += own * dw[j];
        }
        sum = warp_sum(sum) + kSmallestSum;
        inner = warp_sum(inner);
        __syncwarp();
        for (int j = lane; j < k; j += kWarpThreads) {  // different experts
            const float slope = a.options.normalize ? (dw[j] - inner / sum) / sum : dw[j];
            ds[chosen[j]] += a.options.scaling * slope;
        }
        __syncwarp();

        float mean = 0;
        if (softmax) {
            for (int e = lane; e < a.experts; e += kWarpThreads) mean += score(z[e]) * ds[e];
            mean = warp_sum(mean);
        }
        const float of_z = 2 * a.scales.z * score.log_z;
        for (int e = lane; e < a.experts; e += kWarpThreads) {
            const float own = score(z[e]);
            a.dlogits[n * a.dlogits_stride + e] =
                softmax ? own * (ds[e] - mean + of_z)
                        : own * (1 - own) * ds[e] + of_z * expf(z[e] - score.log_z);
        }
        __syncwarp();
    }
}

void require_experts(ConstTensor logits) {
    require(logits.cols <= kMostExperts, "512 experts or fewer");
}

}  // namespace

/// Uses 8 N E / 64 bytes of the lane's workspace.
void router_forward(Context& ctx, ConstTensor logits, ConstTensor bias,
                    const RouterOptions& options, std::span<int32_t> choice, Tensor weights,
                    Tensor load, Tensor score_sums, Tensor log_z) {
    require_router(logits, options, choice, weights, load, log_z);
    require_router_forward(logits, bias, score_sums);
    require_experts(logits);
    const int64_t blocks = (logits.rows + kTokensPerBlock - 1) / kTokensPerBlock;
    const auto experts = static_cast<int>(logits.cols);
    const auto workspace = ctx.cuda().workspace();
    require(static_cast<int64_t>(workspace.size()) >= blocks * 2 * experts * size_of(DType::fp32),
            "few enough tokens for the workspace of the lane");
    auto* const partial = reinterpret_cast<float*>(workspace.data());
    if (blocks > 0) {
        launch(ctx, router_forward_kernel, static_cast<unsigned>(blocks), kThreads,
               ForwardArguments{.logits = logits.as<float>(),
                                .logits_stride = logits.stride,
                                .bias = bias.as<float>(),
                                .tokens = logits.rows,
                                .experts = experts,
                                .options = options,
                                .choice = choice.data(),
                                .weights = weights.as<float>(),
                                .weights_stride = weights.stride,
                                .log_z = log_z.as<float>(),
                                .log_z_stride = log_z.stride,
                                .partial = partial});
    }
    launch(ctx, add_partials_kernel, blocks_for(2 * logits.cols, kThreads), kThreads, partial,
           blocks, experts, score_sums.as<float>(), load.as<float>());
}

void router_backward(Context& ctx, ConstTensor logits, ConstTensor log_z,
                     std::span<const int32_t> choice, ConstTensor dweights, ConstTensor load,
                     const RouterOptions& options, const RouterLossScales& scales, Tensor dlogits) {
    require_router(logits, options, choice, dweights, load, log_z);
    require(same_shape(dlogits, logits) && dlogits.dtype == DType::fp32, "dlogits as logits");
    require_experts(logits);
    if (logits.rows == 0) return;
    launch(ctx, router_backward_kernel, blocks_for(logits.rows, kWarps), kThreads,
           BackwardArguments{.logits = logits.as<float>(),
                             .logits_stride = logits.stride,
                             .log_z = log_z.as<float>(),
                             .log_z_stride = log_z.stride,
                             .choice = choice.data(),
                             .dweights = dweights.as<float>(),
                             .dweights_stride = dweights.stride,
                             .load = load.as<float>(),
                             .tokens = logits.rows,
                             .experts = static_cast<int>(logits.cols),
                             .options = options,
                             .scales = scales,
                             .dlogits = dlogits.as<float>(),
                             .dlogits_stride = dlogits.stride});
}

}  // namespace vocabpipe::kernels::cuda
