// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kSlice = 4096;  ///< elements per block: 16 per thread

struct Parameter {
    float* master;
    const float* gradient;
    float* exp_avg;
    float* exp_avg_sq;
    __nv_bfloat16* weight;  ///< or null
    int64_t count;
    int64_t first_slice;  ///< offset among the launch's slices
    float weight_decay;
    float lr_multiplier;
    bool aligned;  ///< all pointers, to four elements
};

/// Passed by value in the kernel's parameters, for which all GPUs have 4 KiB.
struct Batch {
    static constexpr int kMost = 48;
    Parameter parameters[kMost];
    int count;
};
static_assert(sizeof(Batch) + 64 <= 4096);

struct Factors {
    float gradient_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step,
        inverse_root2, epsilon;
};

template <int kCount>
__device__ __forceinline__ void update(const Parameter& at, const Factors& f, int64_t i) {
    Vector<kCount> p, g, m, v;
    p.load(at.master + i);
    g.load(at.gradient + i);
    m.load(at.exp_avg + i);
    v.load(at.exp_avg_sq + i);
    for (int j = 0; j < kCount; ++j) {
        const float gradient = f.gradient_scale * g[j];
        m[j] = f.beta1 * m[j] + f.one_minus_beta1 * gradient;
        v[j] = f.beta2 * v[j] + f.one_minus_beta2 * (gradient * gradient);
        p[j] = f.decay * p[j] - f.step * m[j] / (sqrtf(v[j]) * f.inverse_root2 + f.epsilon);
    }
    p.store(at.master + i);
    m.store(at.exp_avg + i);
    v.store(at.exp_avg_sq + i);
    if (at.weight != nullptr) p.store(at.weight + i);
}

/// A block per slice of a parameter.
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Batch batch, AdamWCoefficients coefficients, const StepScalars* scalars) {
    if (scalars->update == 0) return;
    int which = 0;
    while (which + 1 < batch.count && batch.parameters[which + 1].first_slice <= blockIdx.x) {
        ++which;
    }
    const Parameter at = batch.parameters[which];
    __shared__ Factors shared;
    if (threadIdx.x == 0) {
        const StepScalars& s = *scalars;
        const double lr = s.lr * at.lr_multiplier;  // rounded to fp32, as on the host
        shared.gradient_scale = s.gradient_scale;
        shared.decay = static_cast<float>(1.0 - lr * at.weight_decay);
        shared.beta1 = coefficients.beta1;
        shared.one_minus_beta1 = 1 - coefficients.beta1;
        shared.beta2 = coefficients.beta2;
        shared.one_minus_beta2 = 1 - coefficients.beta2;
        shared.step = static_cast<float>(lr / s.bias_correction1);
        shared.inverse_root2 =
            static_cast<float>(1.0 / sqrt(static_cast<double>(s.bias_correction2)));
        shared.epsilon = coefficients.epsilon;
    }
    __syncthreads();
    const Factors factors = shared;
    const int64_t begin = (int64_t{blockIdx.x} - at.first_slice) * kSlice;
    const int64_t end = begin + kSlice < at.count ? begin + kSlice : at.count;
    const int64_t vectors_end = at.aligned ? end / 4 * 4 : begin;  // begin is a multiple of 4
    for (int64_t i = begin + int64_t{threadIdx.x} * 4; i < vectors_end; i += kThreads * 4) {
        update<4>(at, factors, i);
    }
    for (int64_t i = vectors_end + threadIdx.x; i < end; i += kThreads) {
        update<1>(at, factors, i);
    }
}

Parameter parameter_of(const AdamWTensor& t, int64_t first_slice) {
    require(t.gradient.size() == t.master.size() && t.exp_avg.size() == t.master.size() &&
                t.exp_avg_sq.size() == t.master.size(),
            "master, gradient and both moments of one length");
    const auto count = static_cast<int64_t>(t.master.size());
    require(!t.weight || (t.weight.dtype == DType::bf16 && t.weight.size() == count &&
                          (t.weight.stride == t.weight.cols || t.weight.rows == 1)),
            "a dense bf16 weight of the length of master");
    const auto aligned = [](const void* at, uintptr_t bytes) {
        return reinterpret_cast<uintptr_t>(at) % bytes == 0;
    };
    return {.master = t.master.data(),
            .gradient = t.gradient.data(),
            .exp_avg = t.exp_avg.data(),
            .exp_avg_sq = t.exp_avg_sq.data(),
            .weight = t.weight.as<__nv_bfloat16>(),
            .count = count,
            .first_slice = first_slice,
            .weight_decay = t.weight_decay,
            .lr_multiplier = t.lr_multiplier,
            .aligned = aligned(t.master.data(), 16) && aligned(t.gradient.data(), 16) &&
                       aligned(t.exp_avg.data(), 16) && aligned(t.exp_avg_sq.data(), 16) &&
                       aligned(t.weight.data, 8)};
}

}  // namespace

/// The GPU reads `update`.
void adamw(Context& ctx, std::span<const AdamWTensor> tensors,
           const AdamWCoefficients& coefficients, const StepScalars* scalars) {
    Batch batch{};
    int64_t slices = 0;
    const auto flush = [&] {
        if (slices == 0) return;
        require(slices <= 0x7fffffff, "fewer than 2^31 slices of 4096 elements");
        launch(ctx, adamw_kernel, static_cast<unsigned>(slices), kThreads, batch, coefficients,
               scalars);
        batch.count = 0;
        slices = 0;
    };
    for (const AdamWTensor& tensor : tensors) {
        if (tensor.master.empty()) continue;
        if (batch.count == Batch::kMost) flush();
        const Parameter& added = batch.parameters[batch.count++] = parameter_of(tensor, slices);
        slices += (added.count + kSlice - 1) / kSlice;
    }
    flush();
}

}  // namespace vocabpipe::kernels::cuda
