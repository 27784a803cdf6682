// SPDX-License-Identifier: Apache-2.0
// Forward: a block per row.
#include "kernels/cuda/operators.hpp"

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/norm_backward.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/norm_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

template <typename T>
struct ForwardArguments {
    const T* x;
    const T* gamma;
    const T* beta;
    T* y;
    float* statistics;
    int64_t h, x_stride, y_stride, statistics_stride;
    float epsilon;
};

template <typename T, int kCount, int kSlots>
__global__ void __launch_bounds__(kMostRowThreads)
    layer_norm_forward_kernel(ForwardArguments<T> a) {
    const int64_t row = blockIdx.x;
    const T* x = a.x + row * a.x_stride;
    const auto size = static_cast<float>(a.h);
    Kept<kCount, kSlots> kept;
    float sum[1] = {0.0F};
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        kept.vectors[slot] = loaded<T, kCount>(x + col);
        for (int i = 0; i < kCount; ++i) sum[0] += kept.vectors[slot][i];
    });
    block_reduce<Sum>(sum);
    const float mean = sum[0] / size;
    float squares[1] = {0.0F};  // of differences: two passes do not cancel
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& values = kept.get(slot, [&] { return loaded<T, kCount>(x + col); });
        for (int i = 0; i < kCount; ++i) {
            const float difference = values[i] - mean;
            squares[0] += difference * difference;
        }
    });
    block_reduce<Sum>(squares);
    const float inverse_std = 1.0F / sqrtf(squares[0] / size + a.epsilon);
    T* y = a.y + row * a.y_stride;
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& values = kept.get(slot, [&] { return loaded<T, kCount>(x + col); });
        const auto gamma = loaded<T, kCount>(a.gamma + col);
        const auto beta = loaded<T, kCount>(a.beta + col);
        Vector<kCount> result;
        for (int i = 0; i < kCount; ++i) {
            result[i] = (values[i] - mean) * inverse_std * gamma[i] + beta[i];
        }
        result.store(y + col);
    });
    if (threadIdx.x == 0) {
        a.statistics[row * a.statistics_stride] = mean;
        a.statistics[row * a.statistics_stride + 1] = inverse_std;
    }
}

}  // namespace

void layer_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, ConstTensor beta,
                        float epsilon, Tensor y, Tensor statistics) {
    require_norm_forward(x, gamma, {}, y);
    require_norm_weight(beta, x);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    if (x.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        const ForwardArguments<T> arguments{.x = x.as<T>(),
                                            .gamma = gamma.as<T>(),
                                            .beta = beta.as<T>(),
                                            .y = y.as<T>(),
                                            .statistics = statistics.as<float>(),
                                            .h = x.cols,
                                            .x_stride = x.stride,
                                            .y_stride = y.stride,
                                            .statistics_stride = statistics.stride,
                                            .epsilon = epsilon};
        with_vectors(
            [&]<int kCount>() {
                with_row_shape<kCount>(x.cols, [&]<int kSlots>(unsigned threads) {
                    launch(ctx, layer_norm_forward_kernel<T, kCount, kSlots>,
                           dim3(blocks_for(x.rows, 1)), dim3(threads), arguments);
                });
            },
            x, gamma, beta, y);
    });
}

void layer_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                               ConstTensor statistics, ConstTensor residual, Tensor dx) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    if (x.size() == 0) return;
    norm_backward<true>(ctx, dy, x, {gamma, {}}, statistics, residual, dx, {}, {}, false);
}

void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                                Tensor dgamma, Tensor dbeta, bool accumulate) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_backward_weight(dy, x, dbeta);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    norm_backward<true>(ctx, dy, x, {}, statistics, {}, {}, dgamma, dbeta, accumulate);
}

void layer_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                         ConstTensor statistics, ConstTensor residual, Tensor dx, Tensor dgamma,
                         Tensor dbeta, bool accumulate) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_backward_weight(dy, x, dbeta);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    norm_backward<true>(ctx, dy, x, {gamma, {}}, statistics, residual, dx, dgamma, dbeta,
                        accumulate);
}

}  // namespace vocabpipe::kernels::cuda
