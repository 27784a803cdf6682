// SPDX-License-Identifier: Apache-2.0
// A block per row.
#include "kernels/cuda/rms_norm.hpp"

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/column_reduce.cuh"
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
    int64_t h, x_stride, residual_stride, y_stride, statistics_stride;
    float epsilon, weight_offset;
};

/// y may be residual: a thread reads its elements of it before it writes them.
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
    const float inverse_rms = 1.0F / sqrtf(squares[0] / static_cast<float>(a.h) + a.epsilon);
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
struct BackwardArguments {
    const T* dy;
    const T* x;
    const T* gamma;
    const T* residual;  ///< or null
    T* dx;
    const float* statistics;
    int64_t h, dy_stride, x_stride, residual_stride, dx_stride, statistics_stride;
    float weight_offset;
};

/// dx may be dy or residual: a thread reads its elements of both before it writes them.
template <typename T, int kCount, int kSlots>
__global__ void __launch_bounds__(kMostRowThreads)
    rms_norm_backward_input_kernel(BackwardArguments<T> a) {
    const int64_t row = blockIdx.x;
    const T* dy = a.dy + row * a.dy_stride;
    const T* x = a.x + row * a.x_stride;
    const float inverse_rms = a.statistics[row * a.statistics_stride];
    const auto load_g = [&](int64_t col) {
        auto g = loaded<T, kCount>(dy + col);
        const auto gamma = loaded<T, kCount>(a.gamma + col);
        for (int i = 0; i < kCount; ++i) g[i] *= gamma[i] + a.weight_offset;
        return g;
    };
    const auto load_z = [&](int64_t col) {
        auto z = loaded<T, kCount>(x + col);
        for (int i = 0; i < kCount; ++i) z[i] *= inverse_rms;
        return z;
    };
    Kept<kCount, kSlots> kept_g, kept_z;
    float sum[1] = {0.0F};  // of g z
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& g = kept_g.vectors[slot] = load_g(col);
        const auto& z = kept_z.vectors[slot] = load_z(col);
        for (int i = 0; i < kCount; ++i) sum[0] += g[i] * z[i];
    });
    block_reduce<Sum>(sum);
    const float mean_gz = sum[0] / static_cast<float>(a.h);
    T* dx = a.dx + row * a.dx_stride;
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& g = kept_g.get(slot, [&] { return load_g(col); });
        const auto& z = kept_z.get(slot, [&] { return load_z(col); });
        Vector<kCount> result;
        for (int i = 0; i < kCount; ++i) result[i] = inverse_rms * (g[i] - z[i] * mean_gz);
        if (a.residual != nullptr) {
            const auto residual = loaded<T, kCount>(a.residual + row * a.residual_stride + col);
            for (int i = 0; i < kCount; ++i) result[i] += residual[i];
        }
        result.store(dx + col);
    });
}

template <typename T, int kCount>
struct WeightTerms {
    const T* dy;
    const T* x;
    const float* statistics;
    int64_t dy_stride, x_stride, statistics_stride;

    __device__ void add(int64_t row, int64_t col, Vector<kCount> (&sums)[1]) const {
        const float inverse_rms = statistics[row * statistics_stride];
        const auto gradient = loaded<T, kCount>(dy + row * dy_stride + col);
        const auto value = loaded<T, kCount>(x + row * x_stride + col);
        for (int i = 0; i < kCount; ++i) sums[0][i] += gradient[i] * (value[i] * inverse_rms);
    }
};

}  // namespace

void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, const RmsNormOptions& options,
                      ConstTensor residual, Tensor y, Tensor statistics) {
    require_norm_forward(x, gamma, residual, y);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    if (x.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        const ForwardArguments<T> arguments{.x = x.as<T>(),
                                            .gamma = gamma.as<T>(),
                                            .residual = residual.as<T>(),
                                            .y = y.as<T>(),
                                            .statistics = statistics.as<float>(),
                                            .h = x.cols,
                                            .x_stride = x.stride,
                                            .residual_stride = residual.stride,
                                            .y_stride = y.stride,
                                            .statistics_stride = statistics.stride,
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
    if (x.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        const BackwardArguments<T> arguments{.dy = dy.as<T>(),
                                             .x = x.as<T>(),
                                             .gamma = gamma.as<T>(),
                                             .residual = residual.as<T>(),
                                             .dx = dx.as<T>(),
                                             .statistics = statistics.as<float>(),
                                             .h = x.cols,
                                             .dy_stride = dy.stride,
                                             .x_stride = x.stride,
                                             .residual_stride = residual.stride,
                                             .dx_stride = dx.stride,
                                             .statistics_stride = statistics.stride,
                                             .weight_offset = options.weight_offset};
        with_vectors(
            [&]<int kCount>() {
                with_row_shape<kCount>(x.cols, [&]<int kSlots>(unsigned threads) {
                    launch(ctx, rms_norm_backward_input_kernel<T, kCount, kSlots>,
                           dim3(blocks_for(x.rows, 1)), dim3(threads), arguments);
                });
            },
            dy, x, gamma, residual, dx);
    });
}

void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                              Tensor dgamma, bool accumulate) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
    const ColumnTotals<1> totals{{dgamma.as<float>()}, accumulate};
    with_element_type(x.dtype, [&]<typename T>() {
        with_vectors(
            [&]<int kCount>() {
                const WeightTerms<T, kCount> terms{.dy = dy.as<T>(),
                                                   .x = x.as<T>(),
                                                   .statistics = statistics.as<float>(),
                                                   .dy_stride = dy.stride,
                                                   .x_stride = x.stride,
                                                   .statistics_stride = statistics.stride};
                column_reduce<1, kCount>(ctx, terms, x.rows, x.cols, totals);
            },
            dy, x);
    });
}

}  // namespace vocabpipe::kernels::cuda
