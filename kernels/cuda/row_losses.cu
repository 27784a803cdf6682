// SPDX-License-Identifier: Apache-2.0
// A warp per row. Every lane has the columns lane, lane + 32, ... in all passes over its row, so
// that a gradient may take the place of its input.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/row_loss_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpThreads;
constexpr int kSumThreads = 256;

__device__ __forceinline__ int64_t lane_of_thread() {
    return threadIdx.x % kWarpThreads;
}

/// Calls body(row) for the rows of this thread's warp.
template <typename Body>
__device__ __forceinline__ void for_rows_of_warp(int64_t rows, const Body& body) {
    const int64_t first = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
    for (int64_t row = first; row < rows; row += int64_t{gridDim.x} * kWarps) body(row);
}

/// What the softmax of a row divides by: exp(z - largest) is at most 1, so nothing overflows.
struct Softmax {
    float largest;
    float sum;  ///< of exp(z - largest)
};

/// All lanes get it.
template <typename T>
__device__ __forceinline__ Softmax softmax_of(const T* z, int64_t cols) {
    float largest = -INFINITY;
    for (int64_t j = lane_of_thread(); j < cols; j += kWarpThreads) {
        largest = fmaxf(largest, to_float(z[j]));
    }
    largest = warp_max(largest);
    float sum = 0;
    for (int64_t j = lane_of_thread(); j < cols; j += kWarpThreads) {
        sum += expf(to_float(z[j]) - largest);
    }
    return {largest, warp_sum(sum)};
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(const T* __restrict__ logits, int64_t logits_stride,
                         const int32_t* __restrict__ labels, int64_t stride,
                         float* __restrict__ losses, int64_t losses_stride, int64_t rows,
                         int64_t cols) {
    for_rows_of_warp(rows, [&](int64_t i) {
        const int32_t label = labels[i * stride];
        float loss = 0;
        if (label >= 0) {
            const T* const z = logits + i * logits_stride;
            const Softmax of = softmax_of(z, cols);
            // Not log Z - z_y, whose digits are lost where the logits are large. A label that
            // nobody checked reads nothing behind the row, and no step takes its loss.
            loss = label < cols ? (of.largest - to_float(z[label])) + logf(of.sum) : NAN;
        }
        if (lane_of_thread() == 0) losses[i * losses_stride] = loss;
    });
}

/// dlogits may be logits.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_gradient_kernel(const T* logits, int64_t logits_stride,
                                  const int32_t* __restrict__ labels,
                                  const float* __restrict__ weights, int64_t stride, T* dlogits,
                                  int64_t dlogits_stride, int64_t rows, int64_t cols) {
    for_rows_of_warp(rows, [&](int64_t i) {
        const int32_t label = labels[i * stride];
        const T* const z = logits + i * logits_stride;
        T* const to = dlogits + i * dlogits_stride;
        if (label < 0) {
            for (int64_t j = lane_of_thread(); j < cols; j += kWarpThreads) {
                to[j] = from_float<T>(0.0F);
            }
            return;
        }
        const Softmax of = softmax_of(z, cols);
        const float weight = weights[i * stride];
        const float inverse = 1.0F / of.sum;
        for (int64_t j = lane_of_thread(); j < cols; j += kWarpThreads) {
            const float p = expf(to_float(z[j]) - of.largest) * inverse;
            to[j] = from_float<T>(weight * (j == label ? p - 1.0F : p));
        }
    });
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    squared_error_kernel(const T* __restrict__ x, int64_t x_stride,
                         const float* __restrict__ targets, int64_t stride,
                         float* __restrict__ losses, int64_t losses_stride, int64_t rows,
                         int64_t cols) {
    const int64_t tokens = rows * stride;
    for_rows_of_warp(rows, [&](int64_t i) {
        float sum = 0;
        for (int64_t j = lane_of_thread(); j < cols; j += kWarpThreads) {
            const float apart = to_float(x[i * x_stride + j]) - targets[j * tokens + i * stride];
            sum += apart * apart;
        }
        sum = warp_sum(sum);
        if (lane_of_thread() == 0) losses[i * losses_stride] = sum / static_cast<float>(cols);
    });
}

/// dx may be x.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    squared_error_gradient_kernel(const T* x, int64_t x_stride, const float* __restrict__ targets,
                                  const float* __restrict__ weights, int64_t stride, T* dx,
                                  int64_t dx_stride, int64_t rows, int64_t cols) {
    const int64_t tokens = rows * stride;
    for_rows_of_warp(rows, [&](int64_t i) {
        const float factor = weights[i * stride] * 2.0F / static_cast<float>(cols);
        for (int64_t j = lane_of_thread(); j < cols; j += kWarpThreads) {
            const float apart = to_float(x[i * x_stride + j]) - targets[j * tokens + i * stride];
            dx[i * dx_stride + j] = from_float<T>(factor * apart);
        }
    });
}

/// One block.
__global__ void __launch_bounds__(kSumThreads)
    add_weighted_losses_kernel(const float* __restrict__ losses, int64_t losses_stride,
                               const float* __restrict__ weights, int64_t stride, int64_t rows,
                               double* total) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows; i += kSumThreads) {
        sum += static_cast<double>(losses[i * losses_stride]) *
               fabs(static_cast<double>(weights[i * stride]));
    }
    sum = block_sum<kSumThreads>(sum);
    if (threadIdx.x == 0) *total += sum;
}

}  // namespace

void cross_entropy_forward(Context& ctx, ConstTensor logits, std::span<const int32_t> labels,
                           int64_t stride, Tensor losses) {
    require_cross_entropy_forward(logits, labels, stride, losses);
    if (logits.rows == 0) return;
    with_element_type(logits.dtype, [&]<typename T>() {
        launch(ctx, cross_entropy_kernel<T>, blocks_for(logits.rows, kWarps), kThreads,
               logits.as<T>(), logits.stride, labels.data(), stride, losses.as<float>(),
               losses.stride, logits.rows, logits.cols);
    });
}

void cross_entropy_backward(Context& ctx, ConstTensor logits, std::span<const int32_t> labels,
                            std::span<const float> weights, int64_t stride, Tensor dlogits) {
    require_cross_entropy_backward(logits, labels, weights, stride, dlogits);
    if (logits.rows == 0) return;
    with_element_type(logits.dtype, [&]<typename T>() {
        launch(ctx, cross_entropy_gradient_kernel<T>, blocks_for(logits.rows, kWarps), kThreads,
               logits.as<T>(), logits.stride, labels.data(), weights.data(), stride,
               dlogits.as<T>(), dlogits.stride, logits.rows, logits.cols);
    });
}

void squared_error_forward(Context& ctx, ConstTensor x, std::span<const float> targets,
                           int64_t stride, Tensor losses) {
    require_squared_error_forward(x, targets, stride, losses);
    if (x.rows == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        launch(ctx, squared_error_kernel<T>, blocks_for(x.rows, kWarps), kThreads, x.as<T>(),
               x.stride, targets.data(), stride, losses.as<float>(), losses.stride, x.rows, x.cols);
    });
}

void squared_error_backward(Context& ctx, ConstTensor x, std::span<const float> targets,
                            std::span<const float> weights, int64_t stride, Tensor dx) {
    require_squared_error_backward(x, targets, weights, stride, dx);
    if (x.rows == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        launch(ctx, squared_error_gradient_kernel<T>, blocks_for(x.rows, kWarps), kThreads,
               x.as<T>(), x.stride, targets.data(), weights.data(), stride, dx.as<T>(), dx.stride,
               x.rows, x.cols);
    });
}

void add_weighted_losses(Context& ctx, ConstTensor losses, std::span<const float> weights,
                         int64_t stride, double* total) {
    require_weighted_losses(losses, weights, stride);
    if (losses.rows == 0) return;
    launch(ctx, add_weighted_losses_kernel, 1, kSumThreads, losses.as<float>(), losses.stride,
           weights.data(), stride, losses.rows, total);
}

}  // namespace vocabpipe::kernels::cuda
