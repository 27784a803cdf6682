// SPDX-License-Identifier: Apache-2.0
// Checks of the output layer operators' arguments that all devices share. They throw UsageError.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/check.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels {

inline void require_options(const LossOptions& options) {
    require(options.label_smoothing >= 0 && options.label_smoothing < 1,
            "label_smoothing from 0 to below 1");
    require(options.z_loss >= 0, "a z_loss of 0 or more");
    require(options.logit_softcap >= 0, "a logit_softcap of 0 or more");
    require(options.logit_softcap == 0 || options.label_smoothing == 0,
            "logit_softcap without label_smoothing, whose gradient would need another product");
}

inline void require_score(ConstTensor x, ConstTensor w, int64_t tokens,
                          const VocabularyShard& shard, const LossOptions& options,
                          ConstTensor exp_logits, ConstTensor statistics) {
    require(x.rows == tokens && statistics.rows == tokens, "one row of x and statistics per label");
    require(statistics.cols == statistics_columns(options) && statistics.dtype == DType::fp32,
            "fp32 statistics of statistics_columns() columns");
    if (shard.rows == 0) return;
    require(has_shape(w, shard.rows, x.cols), "w of shape (rows of the shard, h)");
    require(has_shape(exp_logits, tokens, shard.rows),
            "exp_logits of shape (N, rows of the shard)");
    require(x.dtype == w.dtype && x.dtype == exp_logits.dtype, "x, w and exp_logits of one type");
}

inline void require_logits(ConstTensor x, ConstTensor w, float softcap, ConstTensor z) {
    require(softcap >= 0, "a softcap of 0 or more");
    require(x.rows == 1, "one row of x");
    require(has_shape(z, 1, w.rows) && z.dtype == DType::fp32, "fp32 z (1, v)");
    require(w.rows == 0 || (w.cols == x.cols && w.dtype == x.dtype), "w (v, h) of x's type");
}

inline void require_combination(ConstTensor by_shard, int64_t tokens, std::span<const float> g,
                                int my_shard, const LossOptions& options, ConstTensor factors,
                                std::span<const float> loss) {
    require(by_shard.cols == statistics_columns(options) && by_shard.dtype == DType::fp32,
            "fp32 statistics of statistics_columns() columns");
    require(
        (my_shard + 1) * tokens <= by_shard.rows && (tokens == 0 || by_shard.rows % tokens == 0),
        "statistics of every shard for every token");
    const auto one_each = [tokens](std::span<const float> values) {
        return static_cast<int64_t>(values.size()) == tokens;
    };
    require(one_each(g), "one g per label");
    require(!factors || (has_shape(factors, tokens, 2) && factors.dtype == DType::fp32),
            "fp32 factors (N, 2), or none");
    require(loss.empty() ||
                static_cast<int64_t>(loss.size()) == (options.top_two ? 2 * tokens : tokens),
            "one loss per label, and with top_two one margin");
}

inline void require_input_gradient(ConstTensor u, ConstTensor factors, ConstTensor w,
                                   int64_t tokens, const VocabularyShard& shard) {
    require(u.rows == tokens && u.dtype == DType::fp32, "fp32 u with one row per label");
    require(has_shape(factors, tokens, 2) && factors.dtype == DType::fp32, "fp32 factors (N, 2)");
    require(shard.rows == 0 || has_shape(w, shard.rows, u.cols),
            "w of shape (rows of the shard, h)");
}

inline void require_weight_gradient(ConstTensor x, ConstTensor exp_logits, ConstTensor factors,
                                    int64_t tokens, const VocabularyShard& shard, ConstTensor dw) {
    require(x.rows == tokens, "one row of x per label");
    require(has_shape(factors, tokens, 2) && factors.dtype == DType::fp32, "fp32 factors (N, 2)");
    require(has_shape(exp_logits, tokens, shard.rows),
            "exp_logits of shape (N, rows of the shard)");
    require(has_shape(dw, shard.rows, x.cols) && dw.dtype == DType::fp32,
            "fp32 dw of shape (rows of the shard, h)");
}

}  // namespace vocabpipe::kernels
