// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/bf16.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/row_loss_checks.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// What the softmax of a row divides by: exp(z - largest) is at most 1, so nothing overflows.
struct SoftmaxOfRow {
    float largest;
    float sum;  ///< of exp(z - largest)
};

template <typename T>
SoftmaxOfRow softmax_of_row(const T* z, int64_t cols) {
    float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < cols; ++j) largest = std::max(largest, to_float(z[j]));
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < cols; ++j) sum += fast_exp(to_float(z[j]) - largest);
    return {largest, sum};
}

}  // namespace

void cross_entropy_forward(Context& ctx, ConstTensor logits, std::span<const int32_t> labels,
                           int64_t stride, Tensor losses) {
    require_cross_entropy_forward(logits, labels, stride, losses);
    require_labels_of_columns(labels, stride, logits);
    with_type(logits.dtype, [&]<typename T>() {
        parallel_ranges(ctx, logits.rows, logits.size(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int32_t label = labels[static_cast<size_t>(i * stride)];
                float loss = 0;
                if (label >= 0) {
                    const T* const z = logits.as<T>() + i * logits.stride;
                    const SoftmaxOfRow of = softmax_of_row(z, logits.cols);
                    // Not log Z - z_y, whose digits are lost where the logits are large.
                    loss = (of.largest - to_float(z[label])) + std::log(of.sum);
                }
                losses.as<float>()[i * losses.stride] = loss;
            }
        });
    });
}

void cross_entropy_backward(Context& ctx, ConstTensor logits, std::span<const int32_t> labels,
                            std::span<const float> weights, int64_t stride, Tensor dlogits) {
    require_cross_entropy_backward(logits, labels, weights, stride, dlogits);
    require_labels_of_columns(labels, stride, logits);
    with_type(logits.dtype, [&]<typename T>() {
        parallel_ranges(ctx, logits.rows, logits.size(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int32_t label = labels[static_cast<size_t>(i * stride)];
                T* const to = dlogits.as<T>() + i * dlogits.stride;
                if (label < 0) {
                    std::fill(to, to + dlogits.cols, from_float<T>(0.0F));
                    continue;
                }
                const T* const z = logits.as<T>() + i * logits.stride;
                const SoftmaxOfRow of = softmax_of_row(z, logits.cols);
                const float weight = weights[static_cast<size_t>(i * stride)];
                const float inverse = 1.0F / of.sum;
                // Before the row, which may be the logits' own, is written.
                const float of_label =
                    weight * (fast_exp(to_float(z[label]) - of.largest) * inverse - 1.0F);
#pragma omp simd
                for (int64_t j = 0; j < dlogits.cols; ++j) {
                    to[j] =
                        from_float<T>(weight * (fast_exp(to_float(z[j]) - of.largest) * inverse));
                }
                to[label] = from_float<T>(of_label);
            }
        });
    });
}

void squared_error_forward(Context& ctx, ConstTensor x, std::span<const float> targets,
                           int64_t stride, Tensor losses) {
    require_squared_error_forward(x, targets, stride, losses);
    const int64_t tokens = x.rows * stride;
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const T* const from = x.as<T>() + i * x.stride;
                const float* const target = targets.data() + i * stride;
                float sum = 0;
                for (int64_t j = 0; j < x.cols; ++j) {
                    const float apart = to_float(from[j]) - target[j * tokens];
                    sum += apart * apart;
                }
                losses.as<float>()[i * losses.stride] = sum / static_cast<float>(x.cols);
            }
        });
    });
}

void squared_error_backward(Context& ctx, ConstTensor x, std::span<const float> targets,
                            std::span<const float> weights, int64_t stride, Tensor dx) {
    require_squared_error_backward(x, targets, weights, stride, dx);
    const int64_t tokens = x.rows * stride;
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const T* const from = x.as<T>() + i * x.stride;
                const float* const target = targets.data() + i * stride;
                T* const to = dx.as<T>() + i * dx.stride;
                const float factor =
                    weights[static_cast<size_t>(i * stride)] * 2.0F / static_cast<float>(x.cols);
                for (int64_t j = 0; j < x.cols; ++j) {
                    to[j] = from_float<T>(factor * (to_float(from[j]) - target[j * tokens]));
                }
            }
        });
    });
}

void add_weighted_losses(Context&, ConstTensor losses, std::span<const float> weights,
                         int64_t stride, double* total) {
    require_weighted_losses(losses, weights, stride);
    double sum = 0;
    for (int64_t i = 0; i < losses.rows; ++i) {
        const auto weight = static_cast<double>(weights[static_cast<size_t>(i * stride)]);
        sum += static_cast<double>(losses.as<float>()[i * losses.stride]) * std::abs(weight);
    }
    *total += sum;
}

}  // namespace vocabpipe::kernels::host
