// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

struct Coefficients {
    float gradient_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step,
        inverse_root2, epsilon;
};

void update(float* p, const float* gradient, float* m, float* v, int64_t count,
            const Coefficients& k) {
    // Copies: the compiler cannot know that a store through p leaves k alone.
    const Coefficients c = k;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
        const float g = c.gradient_scale * gradient[i];
        m[i] = c.beta1 * m[i] + c.one_minus_beta1 * g;
        v[i] = c.beta2 * v[i] + c.one_minus_beta2 * (g * g);
        p[i] = c.decay * p[i] - c.step * m[i] / (std::sqrt(v[i]) * c.inverse_root2 + c.epsilon);
    }
}

/// Stores weight = p past the caches: nobody reads a weight before the next step, and a store
/// through the caches would read its line first. Memory bounds the update: 30 bytes per parameter,
/// or 32.
void refresh(const float* p, Bf16* weight, int64_t count) {
    int64_t i = 0;
#ifdef __AVX512F__
    constexpr int64_t kLine = 32;
    alignas(64) std::array<Bf16, kLine> line;
    if (reinterpret_cast<uintptr_t>(weight) % 64 == 0) {
        for (; i + kLine <= count; i += kLine) {
#pragma omp simd
            for (int64_t j = 0; j < kLine; ++j) line[j] = to_bf16(p[i + j]);
            _mm512_stream_si512(reinterpret_cast<__m512i*>(weight + i),
                                _mm512_load_si512(line.data()));
        }
        _mm_sfence();
    }
#endif
    for (; i < count; ++i) weight[i] = to_bf16(p[i]);
}

void update_tensor(Context& ctx, const AdamWTensor& t, const AdamWCoefficients& coefficients,
                   const StepScalars& scalars) {
    require(t.gradient.size() == t.master.size() && t.exp_avg.size() == t.master.size() &&
                t.exp_avg_sq.size() == t.master.size(),
            "master, gradient and both moments of one length");
    const auto count = static_cast<int64_t>(t.master.size());
    require(!t.weight || (t.weight.dtype == DType::bf16 && t.weight.size() == count &&
                          (t.weight.stride == t.weight.cols || t.weight.rows == 1)),
            "a dense bf16 weight of the length of master");
    const double one = 1;
    const float lr = scalars.lr * t.lr_multiplier;
    const Coefficients k{
        .gradient_scale = scalars.gradient_scale,
        .decay = static_cast<float>(one - one * lr * t.weight_decay),
        .beta1 = coefficients.beta1,
        .one_minus_beta1 = 1 - coefficients.beta1,
        .beta2 = coefficients.beta2,
        .one_minus_beta2 = 1 - coefficients.beta2,
        .step = static_cast<float>(one * lr / scalars.bias_correction1),
        .inverse_root2 = static_cast<float>(one / std::sqrt(one * scalars.bias_correction2)),
        .epsilon = coefficients.epsilon,
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
            float* const p = t.master.data() + begin;
            const float* const g = t.gradient.data() + begin;
            float* const m = t.exp_avg.data() + begin;
            float* const v = t.exp_avg_sq.data() + begin;
            Bf16* const weight = t.weight ? t.weight.as<Bf16>() + begin : nullptr;
            for (int64_t i = 0; i < length; i += kBlock) {
                const int64_t block = std::min(kBlock, length - i);
                update(p + i, g + i, m + i, v + i, block, k);
                if (weight != nullptr) refresh(p + i, weight + i, block);
            }
        });
    }
}

}  // namespace

void adamw(Context& ctx, std::span<const AdamWTensor> tensors,
           const AdamWCoefficients& coefficients, const StepScalars* scalars) {
    if (scalars->update == 0) return;
    for (const AdamWTensor& t : tensors) update_tensor(ctx, t, coefficients, *scalars);
}

}  // namespace vocabpipe::kernels::host
