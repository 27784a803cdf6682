// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of losses of rows that all devices share. They throw UsageError.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>

#include "kernels/check.hpp"

namespace vocabpipe::kernels {

template <typename T>
void require_tokens_of_rows(std::span<const T> of_tokens, int64_t rows, int64_t stride) {
    require(stride >= 1, "a stride of 1 or more");
    require(std::ssize(of_tokens) == rows * stride, "labels and weights of rows * stride tokens");
}

inline void require_losses_of_rows(ConstTensor x, ConstTensor losses) {
    require(has_shape(losses, x.rows, 1) && losses.dtype == DType::fp32, "fp32 losses (n, 1)");
    require(x.rows == 0 || x.cols >= 1, "rows of at least one column");
}

inline void require_gradient_of_rows(ConstTensor x, ConstTensor dx) {
    require(same_shape(x, dx) && x.dtype == dx.dtype, "a gradient of its input's shape and type");
    require(x.rows == 0 || x.cols >= 1, "rows of at least one column");
}

inline void require_cross_entropy_forward(ConstTensor logits, std::span<const int32_t> labels,
                                          int64_t stride, ConstTensor losses) {
    require_tokens_of_rows(labels, logits.rows, stride);
    require_losses_of_rows(logits, losses);
}

inline void require_cross_entropy_backward(ConstTensor logits, std::span<const int32_t> labels,
                                           std::span<const float> weights, int64_t stride,
                                           ConstTensor dlogits) {
    require_tokens_of_rows(labels, logits.rows, stride);
    require_tokens_of_rows(weights, logits.rows, stride);
    require_gradient_of_rows(logits, dlogits);
}

/// In addition, where the host can read `labels`.
inline void require_labels_of_columns(std::span<const int32_t> labels, int64_t stride,
                                      ConstTensor logits) {
    for (int64_t i = 0; i < logits.rows; ++i) {
        const int32_t label = labels[static_cast<size_t>(i * stride)];
        if (label < logits.cols) continue;
        throw UsageError("label " + std::to_string(label) + " of row " + std::to_string(i) +
                         " is not one of " + std::to_string(logits.cols) +
                         " logits; a label must be below that number, or negative to be ignored");
    }
}

inline void require_targets(ConstTensor x, std::span<const float> targets, int64_t stride) {
    require(stride >= 1, "a stride of 1 or more");
    require(std::ssize(targets) == x.size() * stride, "targets (columns of x, rows * stride)");
}

inline void require_squared_error_forward(ConstTensor x, std::span<const float> targets,
                                          int64_t stride, ConstTensor losses) {
    require_targets(x, targets, stride);
    require_losses_of_rows(x, losses);
}

inline void require_squared_error_backward(ConstTensor x, std::span<const float> targets,
                                           std::span<const float> weights, int64_t stride,
                                           ConstTensor dx) {
    require_targets(x, targets, stride);
    require_tokens_of_rows(weights, x.rows, stride);
    require_gradient_of_rows(x, dx);
}

inline void require_weighted_losses(ConstTensor losses, std::span<const float> weights,
                                    int64_t stride) {
    require_tokens_of_rows(weights, losses.rows, stride);
    require(losses.cols == 1 && losses.dtype == DType::fp32, "fp32 losses (n, 1)");
}

}  // namespace vocabpipe::kernels
