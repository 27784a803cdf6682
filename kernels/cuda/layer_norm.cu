// SPDX-License-Identifier: Apache-2.0
// A block per row.
#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/layer_norm.hpp"
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
    float squares[1] = {0.0F};  // of the differences: the two-pass form does not cancel
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

template <typename T>
struct BackwardArguments {
    const T* dy;
    const T* x;
    const T* gamma;
    const T* residual;
    T* dx;
    const float* statistics;
    int64_t h, dy_stride, x_stride, residual_stride, dx_stride, statistics_stride;
};

/// dx may be dy or residual: a thread reads its elements of both before it writes them.
template <typename T, int kCount, int kSlots>
__global__ void __launch_bounds__(kMostRowThreads)
    layer_norm_backward_input_kernel(BackwardArguments<T> a) {
    const int64_t row = blockIdx.x;
    const T* dy = a.dy + row * a.dy_stride;
    const T* x = a.x + row * a.x_stride;
    const float mean = a.statistics[row * a.statistics_stride];
    const float inverse_std = a.statistics[row * a.statistics_stride + 1];
    const auto load_g = [&](int64_t col) {
        auto g = loaded<T, kCount>(dy + col);
        const auto gamma = loaded<T, kCount>(a.gamma + col);
        for (int i = 0; i < kCount; ++i) g[i] *= gamma[i];
        return g;
    };
    const auto load_z = [&](int64_t col) {
        auto z = loaded<T, kCount>(x + col);
        for (int i = 0; i < kCount; ++i) z[i] = (z[i] - mean) * inverse_std;
        return z;
    };
    Kept<kCount, kSlots> kept_g, kept_z;
    float sums[2] = {0.0F, 0.0F};  // of g and of g z
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& g = kept_g.vectors[slot] = load_g(col);
        const auto& z = kept_z.vectors[slot] = load_z(col);
        for (int i = 0; i < kCount; ++i) {
            sums[0] += g[i];
            sums[1] += g[i] * z[i];
        }
    });
    block_reduce<Sum>(sums);
    const float mean_g = sums[0] / static_cast<float>(a.h);
    const float mean_gz = sums[1] / static_cast<float>(a.h);
    T* dx = a.dx + row * a.dx_stride;
    for_columns<kCount, kSlots>(a.h, [&](int64_t col, int slot) {
        const auto& g = kept_g.get(slot, [&] { return load_g(col); });
        const auto& z = kept_z.get(slot, [&] { return load_z(col); });
        Vector<kCount> result;
        for (int i = 0; i < kCount; ++i) {
            result[i] = inverse_std * (g[i] - mean_g - z[i] * mean_gz);
        }
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

    __device__ void add(int64_t row, int64_t col, Vector<kCount> (&sums)[2]) const {
        const float mean = statistics[row * statistics_stride];
        const float inverse_std = statistics[row * statistics_stride + 1];
        const auto gradient = loaded<T, kCount>(dy + row * dy_stride + col);
        const auto value = loaded<T, kCount>(x + row * x_stride + col);
        for (int i = 0; i < kCount; ++i) {
            sums[0][i] += gradient[i] * ((value[i] - mean) * inverse_std);
            sums[1][i] += gradient[i];
        }
    }
};

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
                                             .statistics_stride = statistics.stride};
        with_vectors(
            [&]<int kCount>() {
                with_row_shape<kCount>(x.cols, [&]<int kSlots>(unsigned threads) {
                    launch(ctx, layer_norm_backward_input_kernel<T, kCount, kSlots>,
                           dim3(blocks_for(x.rows, 1)), dim3(threads), arguments);
                });
            },
            dy, x, gamma, residual, dx);
    });
}

void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor statistics,
                                Tensor dgamma, Tensor dbeta, bool accumulate) {
    require_norm_backward_weight(dy, x, dgamma);
    require_norm_backward_weight(dy, x, dbeta);
    require_norm_statistics(statistics, x.rows, kLayerNormStatistics);
    const ColumnTotals<2> totals{{dgamma.as<float>(), dbeta.as<float>()}, accumulate};
    with_element_type(x.dtype, [&]<typename T>() {
        with_vectors(
            [&]<int kCount>() {
                const WeightTerms<T, kCount> terms{.dy = dy.as<T>(),
                                                   .x = x.as<T>(),
                                                   .statistics = statistics.as<float>(),
                                                   .dy_stride = dy.stride,
                                                   .x_stride = x.stride,
                                                   .statistics_stride = statistics.stride};
                column_reduce<2, kCount>(ctx, terms, x.rows, x.cols, totals);
            },
            dy, x);
    });
}

}  // namespace vocabpipe::kernels::cuda
