// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.hpp"
#include "kernels/row_loss_checks.hpp"

namespace vocabpipe::kernels::reference {

namespace {

double log_sum_exp(ConstTensor logits, int64_t row) {
    double largest = get(logits, row, 0);
    for (int64_t j = 1; j < logits.cols; ++j) largest = std::max(largest, get(logits, row, j));
    double sum = 0;
    for (int64_t j = 0; j < logits.cols; ++j) sum += std::exp(get(logits, row, j) - largest);
    return largest + std::log(sum);
}

/// x[row, j] minus its target.
double difference(ConstTensor x, std::span<const float> targets, int64_t stride, int64_t row,
                  int64_t j) {
    return get(x, row, j) - targets[static_cast<size_t>((j * x.rows + row) * stride)];
}

double of_row(std::span<const float> weights, int64_t stride, int64_t row) {
    return weights[static_cast<size_t>(row * stride)];
}

}  // namespace

void cross_entropy_forward(Context& ctx, ConstTensor logits, std::span<const int32_t> labels,
                           int64_t stride, Tensor losses) {
    require_tokens_of_rows(labels, logits.rows, stride);
    require_labels_of_columns(labels, stride, logits);
    for (int64_t i = 0; i < logits.rows; ++i) {
        const int32_t label = labels[static_cast<size_t>(i * stride)];
        set(losses, i, 0, label < 0 ? 0 : log_sum_exp(logits, i) - get(logits, i, label));
    }
    ctx.poll();
}

void cross_entropy_backward(Context& ctx, ConstTensor logits, std::span<const int32_t> labels,
                            std::span<const float> weights, int64_t stride, Tensor dlogits) {
    require_cross_entropy_backward(logits, labels, weights, stride, dlogits);
    require_labels_of_columns(labels, stride, logits);
    for (int64_t i = 0; i < logits.rows; ++i) {
        const int32_t label = labels[static_cast<size_t>(i * stride)];
        const double log_z = label < 0 ? 0 : log_sum_exp(logits, i);
        for (int64_t j = 0; j < logits.cols; ++j) {
            const double slope = std::exp(get(logits, i, j) - log_z) - (j == label ? 1 : 0);
            set(dlogits, i, j, label < 0 ? 0 : of_row(weights, stride, i) * slope);
        }
    }
    ctx.poll();
}

void squared_error_forward(Context& ctx, ConstTensor x, std::span<const float> targets,
                           int64_t stride, Tensor losses) {
    require_targets(x, targets, stride);
    for (int64_t i = 0; i < x.rows; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < x.cols; ++j) {
            const double apart = difference(x, targets, stride, i, j);
            sum += apart * apart;
        }
        set(losses, i, 0, sum / static_cast<double>(x.cols));
    }
    ctx.poll();
}

void squared_error_backward(Context& ctx, ConstTensor x, std::span<const float> targets,
                            std::span<const float> weights, int64_t stride, Tensor dx) {
    require_squared_error_backward(x, targets, weights, stride, dx);
    for (int64_t i = 0; i < x.rows; ++i) {
        const double factor = of_row(weights, stride, i) * 2 / static_cast<double>(x.cols);
        for (int64_t j = 0; j < x.cols; ++j) {
            set(dx, i, j, factor * difference(x, targets, stride, i, j));
        }
    }
    ctx.poll();
}

void add_weighted_losses(Context& ctx, ConstTensor losses, std::span<const float> weights,
                         int64_t stride, double* total) {
    double sum = 0;
    for (int64_t i = 0; i < losses.rows; ++i) {
        sum += get(losses, i, 0) * std::abs(of_row(weights, stride, i));
    }
    *total += sum;
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
