// SPDX-License-Identifier: Apache-2.0
// Checks of the output layer operators' arguments that all devices share. They throw UsageError.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/check.hpp"
#include "vocabpipe/policy_loss_options.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels {

inline void require_options(const LossOptions& options) {
    require(options.label_smoothing >= 0 && options.label_smoothing < 1,
            "label_smoothing from 0 to below 1");
    require(options.z_loss >= 0, "a z_loss of 0 or more");
    require(options.logit_softcap >= 0, "a logit_softcap of 0 or more");
    require(options.logit_softcap == 0 || options.label_smoothing == 0,
            "logit_softcap without label_smoothing, whose gradient would need another product");
    require(options.temperature > 0, "a temperature above 0");
    require(
        options.label_smoothing == 0 || (options.temperature == 1 && options.allowed == nullptr),
        "label_smoothing at temperature 1, with all tokens allowed");
    require(options.records.has(TokenRecord::loss), "the loss among the records");
    require(!options.records.has(TokenRecord::top_logprobs) ||
                (options.records.best_count() > 0 &&
                 options.records.best_count() <= TokenRecords::kMostBest),
            "a list of 1 to 64 tokens");
}

inline void require_score(ConstTensor x, ConstTensor w, int64_t tokens,
                          const VocabularyShard& shard, const LossOptions& options,
                          ConstTensor exp_logits, ConstTensor statistics, ConstTensor logits) {
    require(x.rows == tokens && statistics.rows == tokens, "one row of x and statistics per label");
    require(
        statistics.cols == statistics_columns(options.records) && statistics.dtype == DType::fp32,
        "fp32 statistics of statistics_columns() columns");
    if (shard.rows == 0) return;
    require(has_shape(w, shard.rows, x.cols), "w of shape (rows of the shard, h)");
    require(has_shape(exp_logits, tokens, shard.rows),
            "exp_logits of shape (N, rows of the shard)");
    require(x.dtype == w.dtype && x.dtype == exp_logits.dtype, "x, w and exp_logits of one type");
    require(!logits || (has_shape(logits, tokens, shard.rows) && logits.dtype == DType::fp32),
            "fp32 logits of shape (N, rows of the shard), or none");
    require(!options.records.has(TokenRecord::top_logprobs) || shard.vocab_size <= (1 << 24),
            "at most 2^24 tokens in lists of them, whose ids are fp32 numbers");
}

inline void require_logits(ConstTensor x, ConstTensor w, float softcap, ConstTensor z) {
    require(softcap >= 0, "a softcap of 0 or more");
    require(has_shape(z, x.rows, w.rows) && z.dtype == DType::fp32, "fp32 z (n, v)");
    require(w.rows == 0 || (w.cols == x.cols && w.dtype == x.dtype), "w (v, h) of x's type");
}

inline void require_combination(ConstTensor by_shard, int64_t tokens,
                                const TokenGradients& gradients, int my_shard,
                                const LossOptions& options, ConstTensor factors,
                                std::span<const float> records) {
    require(by_shard.cols == statistics_columns(options.records) && by_shard.dtype == DType::fp32,
            "fp32 statistics of statistics_columns() columns");
    require(
        (my_shard + 1) * tokens <= by_shard.rows && (tokens == 0 || by_shard.rows % tokens == 0),
        "statistics of every shard for every token");
    const auto one_each = [tokens](std::span<const float> values) {
        return static_cast<int64_t>(values.size()) == tokens;
    };
    require(one_each(gradients.loss), "one g per label");
    const bool by_entropy = !gradients.entropy.empty();
    require(!factors ||
                (has_shape(factors, tokens, by_entropy ? 4 : 2) && factors.dtype == DType::fp32),
            "fp32 factors (N, 2), (N, 4) with gradients by the entropy, or none");
    require(
        records.empty() || static_cast<int64_t>(records.size()) == options.records.size() * tokens,
        "each record for every label");
    if (!by_entropy) return;
    require(one_each(gradients.entropy), "one gradient by the entropy per label");
    require(options.records.has(TokenRecord::entropy), "the entropy among the records");
    require(options.label_smoothing == 0 && options.z_loss == 0,
            "gradients by the entropy without label_smoothing and z_loss");
    require(options.logit_softcap == 0 || options.caps_later,
            "caps_later with gradients by the entropy of soft-capped logits");
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

inline void require_label_ranks(ConstTensor logits, ConstTensor by_shard,
                                std::span<const int32_t> labels, const VocabularyShard& shard,
                                std::span<const float> counts) {
    const auto tokens = static_cast<int64_t>(labels.size());
    require(
        shard.rows == 0 || (has_shape(logits, tokens, shard.rows) && logits.dtype == DType::fp32),
        "fp32 logits of shape (N, rows of the shard)");
    require(by_shard.cols >= kStatistics && by_shard.dtype == DType::fp32 &&
                (tokens == 0 || by_shard.rows % tokens == 0),
            "statistics of every shard for every token");
    require(counts.size() == labels.size(), "one count per label");
}

inline void require_weigh_by_entropy(const LossOptions& options, ConstTensor exp_logits,
                                     ConstTensor factors) {
    require(has_shape(factors, exp_logits.rows, 4) && factors.dtype == DType::fp32,
            "fp32 factors (N, 4)");
    require(options.logit_softcap == 0 || options.caps_later, "caps_later with soft-capped logits");
}

inline void require_policy_loss(const PolicyLossOptions& options, std::span<const int32_t> labels,
                                std::span<const float> g, std::span<const float> logprob,
                                std::span<const float> entropy, std::span<const float> columns,
                                std::span<const float> loss, std::span<const float> gradient,
                                std::span<const float> entropy_gradient) {
    const size_t tokens = labels.size();
    require(g.size() == tokens && logprob.size() == tokens && loss.size() == tokens &&
                gradient.size() == tokens,
            "one g, logprob, loss and gradient per label");
    require(columns.size() >= static_cast<size_t>(options.columns()) * tokens,
            "columns of advantages, old log-probabilities, and those of a reference where the "
            "divergence counts");
    const size_t of_entropy = options.entropy_coefficient != 0 ? tokens : 0;
    require(entropy.size() == of_entropy && entropy_gradient.size() == of_entropy,
            "one entropy and its gradient per label where it counts, else none");
}

}  // namespace vocabpipe::kernels
