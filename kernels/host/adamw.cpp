// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/adamw.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

struct Coefficients {
    float gradient_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step,
        inverse_root2, epsilon;
};

template <bool refresh>
void update(float* p, const float* gradient, float* m, float* v, Bf16* weight, int64_t count,
            const Coefficients& k) {
    // Copies: the compiler cannot know that a store through p leaves k alone.
    const Coefficients c = k;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
        const float g = c.gradient_scale * gradient[i];
        m[i] = c.beta1 * m[i] + c.one_minus_beta1 * g;
        v[i] = c.beta2 * v[i] + c.one_minus_beta2 * (g * g);
        p[i] = c.decay * p[i] - c.step * m[i] / (std::sqrt(v[i]) * c.inverse_root2 + c.epsilon);
        if constexpr (refresh) weight[i] = to_bf16(p[i]);
    }
}

}  // namespace

void adamw_step(Context& ctx, std::span<float> master, std::span<const float> gradient,
                std::span<float> exp_avg, std::span<float> exp_avg_sq, Tensor weight,
                const AdamWOptions& options) {
    require(gradient.size() == master.size() && exp_avg.size() == master.size() &&
                exp_avg_sq.size() == master.size(),
            "master, gradient and both moments of one length");
    const auto count = static_cast<int64_t>(master.size());
    require(!weight || (weight.dtype == DType::bf16 && weight.size() == count &&
                        (weight.stride == weight.cols || weight.rows == 1)),
            "a dense bf16 weight of the length of master");
    const double one = 1;
    const Coefficients k{
        .gradient_scale = options.gradient_scale,
        .decay = static_cast<float>(one - one * options.lr * options.weight_decay),
        .beta1 = options.beta1,
        .one_minus_beta1 = 1 - options.beta1,
        .beta2 = options.beta2,
        .one_minus_beta2 = 1 - options.beta2,
        .step = static_cast<float>(one * options.lr / options.bias_correction1),
        .inverse_root2 = static_cast<float>(one / std::sqrt(one * options.bias_correction2)),
        .epsilon = options.epsilon,
    };
    constexpr int64_t kBlock = 4096;
    constexpr int64_t kBlocksPerPoll = 4096;  // 470 MB of traffic
    const int64_t blocks = (count + kBlock - 1) / kBlock;
    for (int64_t first = 0; first < blocks; first += kBlocksPerPoll) {
        if (first > 0) ctx.poll();
        const int64_t now = std::min(kBlocksPerPoll, blocks - first);
        parallel_ranges(ctx, now, now * kBlock, [&](int64_t from, int64_t to) {
            const int64_t begin = (first + from) * kBlock;
            const int64_t length = std::min((first + to) * kBlock, count) - begin;
            float* const p = master.data() + begin;
            const float* const g = gradient.data() + begin;
            float* const m = exp_avg.data() + begin;
            float* const v = exp_avg_sq.data() + begin;
            if (weight) {
                update<true>(p, g, m, v, weight.as<Bf16>() + begin, length, k);
            } else {
                update<false>(p, g, m, v, nullptr, length, k);
            }
        });
    }
}

}  // namespace vocabpipe::kernels::host
