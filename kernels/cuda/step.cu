// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    weighted_sum_kernel(const float* __restrict__ values, const float* __restrict__ weights,
                        int64_t count, double* sum) {
    double total = 0;
    for (int64_t i = threadIdx.x; i < count; i += kThreads) {
        total += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
    }
    total = block_sum<kThreads>(total);
    if (threadIdx.x == 0) *sum = total;
}

/// One thread: adds one number per microbatch, in order.
__global__ void add_up_kernel(const double* __restrict__ values, int64_t count, double* sum) {
    double total = *sum;
    for (int64_t i = 0; i < count; ++i) total += values[i];
    *sum = total;
}

/// One block: a thread per entry adds the ranks in order, then the first thread the entries in
/// order.
__global__ void __launch_bounds__(kThreads)
    finish_report_kernel(const double* __restrict__ reports, int64_t count, int64_t entries,
                         int64_t squared, StepScalars* scalars) {
    __shared__ double totals[kThreads];
    double squares = 0;
    double loss = 0;
    double stops = 0;
    const int64_t used = squared + 2;
    for (int64_t first = 0; first < used; first += kThreads) {
        const int64_t entry = first + threadIdx.x;
        double total = 0;
        for (int64_t at = entry; entry < used && at < count; at += entries) total += reports[at];
        totals[threadIdx.x] = total;
        __syncthreads();
        for (int64_t i = 0; threadIdx.x == 0 && i < kThreads && first + i < used; ++i) {
            if (first + i < squared) {
                squares += totals[i];
            } else if (first + i == squared) {
                loss = totals[i];
            } else {
                stops = totals[i];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    StepScalars& s = *scalars;
    const double norm = sqrt(squares);
    s.grad_norm = norm;
    s.loss = loss;
    s.stops = stops;
    s.update = s.counted_tokens > 0 && isfinite(squares) && isfinite(loss) ? 1 : 0;
    const double factor = s.clip_grad / (norm + 1e-6);
    s.gradient_scale = s.clip_grad > 0 && factor < 1 ? static_cast<float>(factor) : 1.0F;
}

}  // namespace

void weighted_sum(Context& ctx, std::span<const float> values, std::span<const float> weights,
                  double* sum) {
    require(values.size() == weights.size(), "one weight per value");
    launch(ctx, weighted_sum_kernel, 1, kThreads, values.data(), weights.data(), values.size(),
           sum);
}

void add_up(Context& ctx, std::span<const double> values, double* sum) {
    if (values.empty()) return;
    launch(ctx, add_up_kernel, 1, 1, values.data(), values.size(), sum);
}

void finish_report(Context& ctx, std::span<const double> reports, int64_t entries, int64_t squared,
                   StepScalars* scalars) {
    require(squared >= 0 && squared + 2 <= entries, "entries for loss and stop requests");
    launch(ctx, finish_report_kernel, 1, kThreads, reports.data(), reports.size(), entries, squared,
           scalars);
}

}  // namespace vocabpipe::kernels::cuda
