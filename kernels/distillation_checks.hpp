// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of distillation's operators that all devices share. They throw
// UsageError.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/check.hpp"
#include "vocabpipe/distillation_options.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels {

inline void require_listed_logits(ConstTensor x, ConstTensor w, ConstTensor ids,
                                  const VocabularyShard& shard, ConstTensor logits) {
    require(ids.cols == x.rows && ids.dtype == DType::fp32, "fp32 ids (k, N)");
    require(has_shape(logits, x.rows, ids.rows) && logits.dtype == DType::fp32,
            "fp32 logits (N, k)");
    require(shard.rows == 0 || (has_shape(w, shard.rows, x.cols) && w.dtype == x.dtype),
            "w of shape (rows of the shard, h) and x's type");
}

inline void require_distillation_loss(const DistillationOptions& options, ConstTensor by_shard,
                                      std::span<const int32_t> labels, std::span<const float> g,
                                      std::span<const float> logprob, std::span<const float> log_z,
                                      ConstTensor teacher, std::span<const float> loss,
                                      std::span<const float> gradient, ConstTensor slopes) {
    const auto tokens = static_cast<int64_t>(labels.size());
    require(options.top_k >= 1 && options.top_k <= TokenRecords::kMostBest, "lists of 1 to 64");
    require(by_shard.cols == options.top_k && by_shard.dtype == DType::fp32 &&
                (tokens == 0 || by_shard.rows % tokens == 0),
            "fp32 listed logits of every shard for every token");
    require(has_shape(teacher, options.top_k, tokens) && teacher.dtype == DType::fp32,
            "fp32 log p of the teacher (k, N)");
    require(has_shape(slopes, tokens, 1 + options.top_k) && slopes.dtype == DType::fp32,
            "fp32 slopes (N, 1 + k)");
    for (const std::span<const float> values : {g, logprob, log_z, loss, gradient}) {
        require(values.size() == labels.size(), "one g, logprob, log Z, loss, gradient per label");
    }
}

inline void require_listed_gradient(ConstTensor slopes, std::span<const int32_t> labels,
                                    ConstTensor ids) {
    const auto tokens = static_cast<int64_t>(labels.size());
    require(has_shape(ids, slopes.cols - 1, tokens) && ids.dtype == DType::fp32, "fp32 ids (k, N)");
    require(slopes.rows == tokens && slopes.dtype == DType::fp32, "fp32 slopes (N, 1 + k)");
}

/// A gradient of `rows` rows, made from rows of the other matrix of the product.
inline void require_listed_rows(ConstTensor gradient, ConstTensor from, int64_t rows,
                                const VocabularyShard& shard) {
    require(gradient.rows == rows && gradient.dtype == DType::fp32,
            "a fp32 gradient with a row for each row of its matrix");
    require(shard.rows == 0 || has_shape(from, shard.rows, gradient.cols),
            "x (N, h) and w (rows of the shard, h)");
}

}  // namespace vocabpipe::kernels
