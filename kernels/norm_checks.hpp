// SPDX-License-Identifier: Apache-2.0
// Checks of the norm operators' arguments that all devices share. They throw UsageError.
#pragma once

#include "kernels/check.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/rms_norm_options.hpp"

namespace vocabpipe::kernels {

inline constexpr int64_t kLayerNormStatistics = 2;  ///< per row: mean, inverse standard deviation
inline constexpr int64_t kRmsNormStatistics = 1;    ///< per row: inverse_rms

inline void require_norm_statistics(ConstTensor statistics, int64_t rows, int64_t cols) {
    require(has_shape(statistics, rows, cols) && statistics.dtype == DType::fp32,
            "fp32 statistics: (N, 2) of LayerNorm, (N, 1) of RMSNorm, (N, heads + kv_heads) of q "
            "and k");
}

/// gamma, or LayerNorm's beta.
inline void require_norm_weight(ConstTensor weight, ConstTensor x) {
    require(has_shape(weight, 1, x.cols) && weight.dtype == x.dtype,
            "gamma, beta (1, h) of x's type");
}

/// Norms without beta. `residual` may be empty.
inline void require_norm_forward(ConstTensor x, ConstTensor gamma, ConstTensor residual,
                                 ConstTensor y) {
    require(same_shape(x, y) && x.dtype == y.dtype, "equal shapes and types of x and y");
    require(!residual || (same_shape(residual, y) && residual.dtype == y.dtype),
            "residual of y's shape and type");
    require_norm_weight(gamma, x);
}

inline void require_norm_backward_input(ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                        ConstTensor residual, ConstTensor dx) {
    require(same_shape(dy, dx) && dy.dtype == dx.dtype, "equal shapes and types of dy and dx");
    require_norm_forward(x, gamma, residual, dx);
}

inline void require_norm_sums(const RmsNormOptions& options, ConstTensor x) {
    if (!options.sums) return;
    require(has_shape(options.sums, 1, x.rows) && options.sums.dtype == DType::fp32 &&
                options.columns >= x.cols,
            "fp32 sums (1, N) of at least x's columns");
}

/// Either all of dy, gamma and statistics are empty, or none is.
inline void require_norm_sums(ConstTensor dy, ConstTensor x, ConstTensor gamma,
                              ConstTensor statistics, ConstTensor sums) {
    require(has_shape(sums, 1, x.rows) && sums.dtype == DType::fp32, "fp32 sums (1, N)");
    if (!dy && !gamma && !statistics) return;
    require(same_shape(dy, x) && dy.dtype == x.dtype, "equal shapes and types of x and dy");
    require_norm_weight(gamma, x);
    require_norm_statistics(statistics, x.rows, kRmsNormStatistics);
}

/// Checks dgamma or, in a second call, dbeta.
inline void require_norm_backward_weight(ConstTensor dy, ConstTensor x, ConstTensor gradient) {
    require(same_shape(x, dy) && x.dtype == dy.dtype, "equal shapes and types of x and dy");
    require(has_shape(gradient, 1, x.cols) && gradient.dtype == DType::fp32,
            "fp32 dgamma, dbeta (1, h)");
}

/// `other`: the tensor (N, qkv_columns) on the other side of the norm, or its gradient.
inline void require_head_norm(ConstTensor qkv, ConstTensor other, ConstTensor statistics,
                              const AttentionShape& shape) {
    require(shape.value_size() == shape.head_size, "values of head_size");
    require(has_shape(qkv, shape.tokens(), shape.qkv_columns()) && same_shape(other, qkv),
            "tensors of shape (N, qkv_columns)");
    require(qkv.dtype == other.dtype, "one type for all tensors (N, qkv_columns)");
    require_norm_statistics(statistics, qkv.rows, shape.heads + shape.kv_heads);
}

/// `type`: qkv's for weights, fp32 for gradients.
inline void require_head_gammas(ConstTensor gamma_q, ConstTensor gamma_k,
                                const AttentionShape& shape, DType type) {
    require(has_shape(gamma_q, 1, shape.head_size) && has_shape(gamma_k, 1, shape.head_size),
            "gamma_q, gamma_k (1, head_size)");
    require(gamma_q.dtype == type && gamma_k.dtype == type,
            "gammas of qkv's type, or their gradients in fp32");
}

}  // namespace vocabpipe::kernels
