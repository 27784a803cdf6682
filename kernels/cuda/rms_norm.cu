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
    const T* residual;  ///< or null
    T* y;
    float* statistics;
    const float* sums;  ///< of squares of `columns` columns, of which x has h; or null
    int64_t h, x_stride, residual_stride, y_stride, statistics_stride;
    float columns, epsilon, weight_offset;
};

/// y may be residual: a thread reads the residual's elements before it writes them.
template <typename T, int kCount, int kSlots>
__global__ void __launch_bounds__(kMostRowThreads) rms_norm_forward_kernel(ForwardArguments<T> a) {
    const int64_t row = blockIdx.x;
    const T* x = a.x + row * a.x_stride;
    Kept<kCount, kSlots> kept;
    float squares[1] = {0.0F};
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& values = kept.vectors[slot] = loaded<T, kCount>(x + col);
        for (int i = 0; i < kCount; ++i) squares[0] += values[i] * values[i];
    });
    block_reduce<Sum>(squares);
    if (a.sums != nullptr) squares[0] = a.sums[row];
    const float inverse_rms = 1.0F / sqrtf(squares[0] / a.columns + a.epsilon);
    T* y = a.y + row * a.y_stride;
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& values = kept.get(slot, [&] { return loaded<T, kCount>(x + col); });
        const auto gamma = loaded<T, kCount>(a.gamma + col);
        Vector<kCount> result;
        for (int i = 0; i < kCount; ++i) {
            result[i] = (gamma[i] + a.weight_offset) * (values[i] * inverse_rms);
        }
        if (a.residual != nullptr) {
            const auto residual = loaded<T, kCount>(a.residual + row * a.residual_stride + col);
            for (int i = 0; i < kCount; ++i) result[i] += residual[i];
        }
        result.store(y + col);
    });
    if (threadIdx.x == 0) a.statistics[row * a.statistics_stride] = inverse_rms;
}

template <typename T>
struct SumsArguments {
    const T* dy;     ///< or null: sums of squares
    const T* gamma;  ///< with dy
    const T* x;
    const float* statistics;
    float* sums;
    int64_t h, dy_stride, x_stride, statistics_stride;
    float weight_offset;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kMostRowThreads) rms_norm_sums_kernel(SumsArguments<T> a) {
    const int64_t row = blockIdx.x;
    const T* x = a.x + row * a.x_stride;
    float sums[1] = {0.0F};
    for_columns<kCount, 0>(a.h, [&](int64_t col, int) {
        const auto values = loaded<T, kCount>(x + col);
        if (a.dy == nullptr) {
            for (int i = 0; i < kCount; ++i) sums[0] += values[i] * values[i];
            return;
        }
        const auto dy = loaded<T, kCount>(a.dy + row * a.dy_stride + col);
        const auto gamma = loaded<T, kCount>(a.gamma + col);
        const float inverse_rms = a.statistics[row * a.statistics_stride];
        for (int i = 0; i < kCount; ++i) {
            sums[0] += dy[i] * (gamma[i] + a.weight_offset) * (values[i] * inverse_rms);
        }
    });
    block_reduce<Sum>(sums);
    if (threadIdx.x == 0) a.sums[row] = sums[0];
}

}  // namespace

void rms_norm_sums(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                   const RmsNormOptions& options, ConstTensor statistics, Tensor sums) {
    require_norm_sums(dy, x, gamma, statistics, sums);
    if (x.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        const SumsArguments<T> arguments{.dy = dy.as<T>(),
                                         .gamma = gamma.as<T>(),
                                         .x = x.as<T>(),
                                         .statistics = statistics.as<float>(),
                                         .sums = sums.as<float>(),
                                         .h = x.cols,
                                         .dy_stride = dy.stride,
                                         .x_stride = x.stride,
                                         .statistics_stride = statistics.stride,
                                         .weight_offset = options.weight_offset};
        with_vectors(
            [&]<int kCount>() {
                with_row_shape<kCount>(x.cols, [&]<int>(unsigned threads) {
                    launch(ctx, rms_norm_sums_kernel<T, kCount>, dim3(blocks_for(x.rows, 1)),
                           dim3(threads), arguments);
                });
            },
            dy, x, gamma);
    });
}

void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, const RmsNormOptions& options,
                      ConstTensor residual, Tensor y, Tensor statistics) {
    require_norm_forward(x, gamma, residual, y);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    require_norm_sums(options, x);
    if (x.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        const ForwardArguments<T> arguments{.x = x.as<T>(),
                                            .gamma = gamma.as<T>(),
                                            .residual = residual.as<T>(),
                                            .y = y.as<T>(),
                                            .statistics = statistics.as<float>(),
                                            .sums = options.sums.as<float>(),
                                            .h = x.cols,
                                            .x_stride = x.stride,
                                            .residual_stride = residual.stride,
                                            .y_stride = y.stride,
                                            .statistics_stride = statistics.stride,
                                            .columns = columns_of(options, x),
                                            .epsilon = options.epsilon,
                                            .weight_offset = options.weight_offset};
        with_vectors(
            [&]<int kCount>() {
                with_row_shape<kCount>(x.cols, [&]<int kSlots>(unsigned threads) {
                    launch(ctx, rms_norm_forward_kernel<T, kCount, kSlots>,
                           dim3(blocks_for(x.rows, 1)), dim3(threads), arguments);
                });
            },
            x, gamma, residual, y);
    });
}

void rms_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                             const RmsNormOptions& options, ConstTensor statistics,
                             ConstTensor residual, Tensor dx) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    require_norm_sums(options, x);
    if (x.size() == 0) return;
    norm_backward<false>(ctx, dy, x, {gamma, options}, statistics, residual, dx, {}, {}, false);
}

void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                              Tensor dgamma, bool accumulate) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    norm_backward<false>(ctx, dy, x, {}, statistics, {}, {}, dgamma, {}, accumulate);
}

void rms_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                       const RmsNormOptions& options, ConstTensor statistics, ConstTensor residual,
                       Tensor dx, Tensor dgamma, bool accumulate) {
    require_norm_backward_input(dy, x, gamma, residual, dx);
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    require_norm_sums(options, x);
    norm_backward<false>(ctx, dy, x, {gamma, options}, statistics, residual, dx, dgamma, {},
                         accumulate);
}

}  // namespace vocabpipe::kernels::cuda
