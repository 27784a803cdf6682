// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/attention_statistics.hpp"
#include "kernels/cuda/launch.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr unsigned kThreads = 256;

/// Copies between (N, heads) and (sequence, head, token) order; `at` is the index of the packed
/// element.
template <bool kPacks>
__global__ void __launch_bounds__(kThreads)
    move_statistics_kernel(const float* from, float* to, int64_t count, int64_t heads,
                           int64_t seq_length, int64_t stride) {
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < count; at += step) {
        const int64_t token = at % seq_length;
        const int64_t head = at / seq_length % heads;
        const int64_t sequence = at / seq_length / heads;
        const int64_t in_rows = (sequence * seq_length + token) * stride + head;
        if constexpr (kPacks) {
            to[at] = from[in_rows];
        } else {
            to[in_rows] = from[at];
        }
    }
}

}  // namespace

void pack_statistics(CallSite ctx, ConstTensor log_sum_exp, int64_t seq_length, float* packed) {
    if (log_sum_exp.size() == 0) return;
    launch(ctx, move_statistics_kernel<true>, dim3(blocks_for(log_sum_exp.size(), kThreads)),
           dim3(kThreads), log_sum_exp.as<float>(), packed, log_sum_exp.size(), log_sum_exp.cols,
           seq_length, log_sum_exp.stride);
}

void unpack_statistics(CallSite ctx, const float* packed, int64_t seq_length, Tensor log_sum_exp) {
    if (log_sum_exp.size() == 0) return;
    launch(ctx, move_statistics_kernel<false>, dim3(blocks_for(log_sum_exp.size(), kThreads)),
           dim3(kThreads), packed, log_sum_exp.as<float>(), log_sum_exp.size(), log_sum_exp.cols,
           seq_length, log_sum_exp.stride);
}

}  // namespace vocabpipe::kernels::cuda
