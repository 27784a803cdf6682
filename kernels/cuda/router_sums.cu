// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/expert_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    sum_routing_kernel(const float* __restrict__ load, const float* __restrict__ score_sums,
                       int64_t experts, const float* __restrict__ log_z, int64_t stride,
                       int64_t tokens, double balance_scale, double* sums, bool accumulate) {
    double balance = 0, z = 0;
    for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
        balance += static_cast<double>(load[e]) * static_cast<double>(score_sums[e]);
    }
    for (int64_t n = threadIdx.x; n < tokens; n += kThreads) {
        const double value = log_z[n * stride];
        z += value * value;
    }
    balance = block_sum<kThreads>(balance);
    __syncthreads();
    z = block_sum<kThreads>(z);
    const auto add = [&](int64_t at, double value) {
        sums[at] = accumulate ? sums[at] + value : value;
    };
    if (threadIdx.x == 0) {
        add(kRoutedMicrobatches, 1);
        add(kRouterBalance, balance * balance_scale);
        add(kRouterZ, z / static_cast<double>(tokens));
    }
    for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
        add(kExpertLoads + e, static_cast<double>(load[e]));
    }
}

__global__ void __launch_bounds__(kThreads)
    sum_reports_kernel(const double* __restrict__ reports, int64_t count, int64_t entries,
                       int64_t first, int64_t wanted, double* __restrict__ sums) {
    const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i >= wanted) return;
    double sum = 0;
    for (int64_t at = first + i; at < count; at += entries) sum += reports[at];
    sums[i] = sum;
}

/// One block. Loads are whole numbers, so their sum does not depend on the order.
__global__ void __launch_bounds__(kThreads)
    update_correction_bias_kernel(const double* __restrict__ loads, int64_t experts, float rate,
                                  const StepScalars* scalars, float* bias) {
    if (scalars->update == 0) return;
    double mean = 0;
    for (int64_t e = threadIdx.x; e < experts; e += kThreads) mean += loads[e];
    mean = block_sum<kThreads>(mean) / static_cast<double>(experts);
    for (int64_t e = threadIdx.x; e < experts; e += kThreads) {
        bias[e] += loads[e] < mean ? rate : loads[e] > mean ? -rate : 0.0F;
    }
}

}  // namespace

void sum_routing(Context& ctx, ConstTensor load, ConstTensor score_sums, ConstTensor log_z,
                 int64_t top_k, std::span<double> sums, bool accumulate) {
    require_sum_routing(load, score_sums, log_z, sums);
    const auto tokens = static_cast<double>(log_z.rows);
    const double scale =
        static_cast<double>(load.cols) / (static_cast<double>(top_k) * tokens * tokens);
    launch(ctx, sum_routing_kernel, 1, kThreads, load.as<float>(), score_sums.as<float>(),
           load.cols, log_z.as<float>(), log_z.stride, log_z.rows, scale, sums.data(), accumulate);
}

void sum_reports(Context& ctx, std::span<const double> reports, int64_t entries, int64_t first,
                 std::span<double> sums) {
    require_sum_reports(reports, entries, first, sums);
    if (sums.empty()) return;
    const auto wanted = static_cast<int64_t>(sums.size());
    launch(ctx, sum_reports_kernel, blocks_for(wanted, kThreads), kThreads, reports.data(),
           static_cast<int64_t>(reports.size()), entries, first, wanted, sums.data());
}

void update_correction_bias(Context& ctx, std::span<const double> loads, float rate,
                            const StepScalars* scalars, Tensor bias) {
    require_correction_bias(loads, bias);
    launch(ctx, update_correction_bias_kernel, 1, kThreads, loads.data(),
           static_cast<int64_t>(loads.size()), rate, scalars, bias.as<float>());
}

}  // namespace vocabpipe::kernels::cuda
