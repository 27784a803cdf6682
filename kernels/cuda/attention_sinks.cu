// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_checks.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpThreads;

/// Calls body(row, head, lane) with all lanes of a warp, for every row and head of (rows, heads).
template <typename Body>
__device__ __forceinline__ void for_heads(int64_t rows, int heads, const Body& body) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int64_t first = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
    for (int64_t at = first; at < rows * heads; at += int64_t{gridDim.x} * kWarps) {
        body(at / heads, static_cast<int>(at % heads), lane);
    }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sinks_forward_kernel(const T* __restrict__ sinks, int64_t rows, int heads, int size,
                         Rows<T> out, Rows<float> log_sum_exp) {
    for_heads(rows, heads, [&](int64_t row, int head, int lane) {
        float* const sum = log_sum_exp.data + row * log_sum_exp.stride + head;
        const float sink = to_float(sinks[head]), before = *sum;
        const float added = log1pf(expf(-fabsf(sink - before)));
        const float factor = expf(fminf(before - sink, 0.0F) - added);
        __syncwarp();  // all lanes have read the sum
        if (lane == 0) *sum = fmaxf(sink, before) + added;
        T* const values = out.data + row * out.stride + int64_t{head} * size;
        for (int i = lane; i < size; i += kWarpThreads) {
            values[i] = from_float<T>(to_float(values[i]) * factor);
        }
    });
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sinks_backward_kernel(const T* __restrict__ sinks, int64_t rows, int heads, int size,
                          Rows<const T> dout, Rows<const T> out, Rows<const float> log_sum_exp,
                          Rows<float> dscores) {
    for_heads(rows, heads, [&](int64_t row, int head, int lane) {
        const T* const gradients = dout.data + row * dout.stride + int64_t{head} * size;
        const T* const values = out.data + row * out.stride + int64_t{head} * size;
        float product = 0.0F;
        for (int i = lane; i < size; i += kWarpThreads) {
            product += to_float(gradients[i]) * to_float(values[i]);
        }
        product = warp_sum(product);
        if (lane > 0) return;
        const float sum = log_sum_exp.data[row * log_sum_exp.stride + head];
        dscores.data[row * dscores.stride + head] = -expf(to_float(sinks[head]) - sum) * product;
    });
}

}  // namespace

void attention_sinks_forward(Context& ctx, ConstTensor sinks, const AttentionShape& shape,
                             Tensor out, Tensor log_sum_exp) {
    require_attention_sinks(sinks, shape, out, log_sum_exp);
    if (out.size() == 0) return;
    with_element_type(out.dtype, [&]<typename T>() {
        launch(ctx, sinks_forward_kernel<T>, dim3(blocks_for(out.rows * shape.heads, kWarps)),
               dim3(kThreads), sinks.as<T>(), out.rows, static_cast<int>(shape.heads),
               static_cast<int>(shape.value_size()), Rows<T>{out.as<T>(), out.stride},
               Rows<float>{log_sum_exp.as<float>(), log_sum_exp.stride});
    });
}

void attention_sinks_backward(Context& ctx, ConstTensor sinks, ConstTensor dout, ConstTensor out,
                              ConstTensor log_sum_exp, const AttentionShape& shape,
                              Tensor dscores) {
    require_attention_sinks(sinks, shape, out, log_sum_exp);
    require_sink_gradients(dout, out, dscores, log_sum_exp);
    if (out.size() == 0) return;
    with_element_type(out.dtype, [&]<typename T>() {
        launch(ctx, sinks_backward_kernel<T>, dim3(blocks_for(out.rows * shape.heads, kWarps)),
               dim3(kThreads), sinks.as<T>(), out.rows, static_cast<int>(shape.heads),
               static_cast<int>(shape.value_size()), Rows<const T>{dout.as<T>(), dout.stride},
               Rows<const T>{out.as<T>(), out.stride},
               Rows<const float>{log_sum_exp.as<float>(), log_sum_exp.stride},
               Rows<float>{dscores.as<float>(), dscores.stride});
    });
}

}  // namespace vocabpipe::kernels::cuda
