// SPDX-License-Identifier: Apache-2.0
// The list of a token has at most 64 entries where a vocabulary has 100,000 rows: plain kernels.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/distillation_checks.hpp"
#include "kernels/distillation_token.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpThreads;

/// Lists of tokens, and the shard that owns some of their entries.
struct Lists {
    const int32_t* labels;
    const float* ids;
    int64_t id_stride;
    int64_t tokens;
    int64_t entries;  ///< of a list
    VocabularyShard shard;
};

/// The row of an entry within the shard: of the label (entry 0) or of the list; -1: another shard
/// owns it, or there is none.
__device__ int64_t shard_row(const Lists& of, int64_t n, int64_t entry) {
    const int64_t id =
        entry == 0 ? of.labels[n] : static_cast<int64_t>(of.ids[(entry - 1) * of.id_stride + n]);
    const int64_t row = id - of.shard.first_row;
    return id >= 0 && row >= 0 && row < of.shard.rows ? row : -1;
}

struct LogitOptions {
    const uint32_t* allowed;  ///< or null
    float cap;
    float temperature;
};

/// A warp per entry of a list.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    listed_logits_kernel(Lists of, LogitOptions options, const T* x, int64_t x_stride, const T* w,
                         int64_t w_stride, int64_t cols, float* logits, int64_t stride) {
    const int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
    if (at >= of.tokens * of.entries) return;
    const int64_t n = at / of.entries;
    const int64_t entry = at % of.entries;
    const int64_t row = shard_row(of, n, 1 + entry);
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    float z = 0;
    for (int64_t i = lane; row >= 0 && i < cols; i += kWarpThreads) {
        z += to_float(x[n * x_stride + i]) * to_float(w[row * w_stride + i]);
    }
    z = warp_sum(z);
    if (lane != 0) return;
    if (options.cap > 0) z = options.cap * tanhf(z / options.cap);
    z /= options.temperature;
    if (row >= 0 && options.allowed != nullptr &&
        (options.allowed[row / 32] >> (row % 32) & 1U) == 0) {
        z = -HUGE_VALF;
    }
    logits[n * stride + entry] = z;
}

struct DistilledTokens {
    DistillationOptions options;
    LossOptions layer;
    int64_t tokens;
    const int32_t* labels;
    const float* g;
    const float* logprob;
    const float* log_z;
    const float* listed;
    int64_t listed_stride;
    int64_t shards;
    const float* teacher;
    int64_t teacher_stride;
    float* loss;
    float* gradient;
    float* slopes;
    int64_t slope_stride;
};

/// A thread per token.
__global__ void __launch_bounds__(kThreads) distillation_kernel(DistilledTokens of) {
    const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (n >= of.tokens) return;
    float* const slopes = of.slopes + n * of.slope_stride;
    DistilledLoss made;
    if (of.labels[n] < 0) {
        for (int64_t i = 0; i <= of.options.top_k; ++i) slopes[i] = 0;
    } else {
        made = distilled_loss(of.options, of.layer,
                              {.logits = of.listed + n * of.listed_stride,
                               .shards = of.shards,
                               .shard_stride = of.tokens * of.listed_stride,
                               .teacher = of.teacher + n,
                               .teacher_stride = of.teacher_stride,
                               .logprob = of.logprob[n],
                               .log_z = of.log_z[n],
                               .weight = of.g[n],
                               .slopes = slopes});
    }
    of.loss[n] = static_cast<float>(made.loss);
    of.gradient[n] = static_cast<float>(made.gradient);
}

/// A block per token.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    listed_input_kernel(Lists of, const float* slopes, int64_t slope_stride, const T* w,
                        int64_t w_stride, int64_t cols, float* u, int64_t stride) {
    const int64_t n = blockIdx.x;
    for (int64_t entry = 0; entry <= of.entries; ++entry) {
        const int64_t row = shard_row(of, n, entry);
        if (row < 0) continue;
        const float slope = slopes[n * slope_stride + entry];
        for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
            u[n * stride + i] += slope * to_float(w[row * w_stride + i]);
        }
    }
}

/// A thread per column, as two tokens may have the same entry.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    listed_weight_kernel(Lists of, const float* slopes, int64_t slope_stride, const T* x,
                         int64_t x_stride, int64_t cols, float* dw, int64_t stride) {
    const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i >= cols) return;
    for (int64_t n = 0; n < of.tokens; ++n) {
        for (int64_t entry = 0; entry <= of.entries; ++entry) {
            const int64_t row = shard_row(of, n, entry);
            if (row < 0) continue;
            dw[row * stride + i] +=
                slopes[n * slope_stride + entry] * to_float(x[n * x_stride + i]);
        }
    }
}

Lists lists_of(std::span<const int32_t> labels, ConstTensor ids, const VocabularyShard& shard) {
    return {.labels = labels.data(),
            .ids = ids.as<float>(),
            .id_stride = ids.stride,
            .tokens = ids.cols,
            .entries = ids.rows,
            .shard = shard};
}

}  // namespace

void listed_logits(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor ids,
                   const VocabularyShard& shard, const LossOptions& options, Tensor logits) {
    require_listed_logits(x, w, ids, shard, logits);
    if (ids.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        launch(ctx, listed_logits_kernel<T>, blocks_for(ids.size(), kWarps), kThreads,
               lists_of({}, ids, shard),
               LogitOptions{.allowed = options.allowed,
                            .cap = options.logit_softcap,
                            .temperature = options.temperature},
               x.as<T>(), x.stride, w.as<T>(), w.stride, x.cols, logits.as<float>(), logits.stride);
    });
}

void distillation_loss(Context& ctx, const DistillationOptions& options, const LossOptions& layer,
                       ConstTensor by_shard, std::span<const int32_t> labels,
                       std::span<const float> g, std::span<const float> logprob,
                       std::span<const float> log_z, ConstTensor teacher, std::span<float> loss,
                       std::span<float> gradient, Tensor slopes) {
    require_distillation_loss(options, by_shard, labels, g, logprob, log_z, teacher, loss, gradient,
                              slopes);
    const auto tokens = static_cast<int64_t>(labels.size());
    if (tokens == 0) return;
    launch(ctx, distillation_kernel, blocks_for(tokens, kThreads), kThreads,
           DistilledTokens{.options = options,
                           .layer = layer,
                           .tokens = tokens,
                           .labels = labels.data(),
                           .g = g.data(),
                           .logprob = logprob.data(),
                           .log_z = log_z.data(),
                           .listed = by_shard.as<float>(),
                           .listed_stride = by_shard.stride,
                           .shards = by_shard.rows / tokens,
                           .teacher = teacher.as<float>(),
                           .teacher_stride = teacher.stride,
                           .loss = loss.data(),
                           .gradient = gradient.data(),
                           .slopes = slopes.as<float>(),
                           .slope_stride = slopes.stride});
}

void listed_input_gradient(Context& ctx, ConstTensor slopes, ConstTensor w,
                           std::span<const int32_t> labels, ConstTensor ids,
                           const VocabularyShard& shard, Tensor u) {
    require_listed_gradient(slopes, labels, ids);
    require_listed_rows(u, w, slopes.rows, shard);
    if (u.size() == 0 || shard.rows == 0) return;
    with_element_type(w.dtype, [&]<typename T>() {
        launch(ctx, listed_input_kernel<T>, static_cast<unsigned>(u.rows), kThreads,
               lists_of(labels, ids, shard), slopes.as<float>(), slopes.stride, w.as<T>(), w.stride,
               u.cols, u.as<float>(), u.stride);
    });
}

void listed_weight_gradient(Context& ctx, ConstTensor slopes, ConstTensor x,
                            std::span<const int32_t> labels, ConstTensor ids,
                            const VocabularyShard& shard, Tensor dw) {
    if (shard.rows == 0) return;
    require_listed_gradient(slopes, labels, ids);
    require_listed_rows(dw, x, shard.rows, {.rows = slopes.rows});
    if (x.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        launch(ctx, listed_weight_kernel<T>, blocks_for(x.cols, kThreads), kThreads,
               lists_of(labels, ids, shard), slopes.as<float>(), slopes.stride, x.as<T>(), x.stride,
               x.cols, dw.as<float>(), dw.stride);
    });
}

}  // namespace vocabpipe::kernels::cuda
