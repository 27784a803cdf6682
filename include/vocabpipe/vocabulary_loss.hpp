// SPDX-License-Identifier: Apache-2.0
// The output layer (projection, softmax, cross-entropy) of one vocabulary shard in row-factor
// form. Any negative label is ignored: it belongs to no shard, its loss is 0 and its g counts as
// 0.
//
//     S   z = X W^T, e = exp(z - m), and some numbers per row     vocabulary_score
//     C1  all-gather of those numbers                              (transport)
//         M, A over all shards; records, c_n, d_n per row          combine_statistics
//         how many come before the label, of its shard             label_ranks
//     L   a loss of records: g_n and gradients by the entropy      policy_loss, or yours
//         e (c + h log e) where it depends on the entropy, in T    weigh_by_entropy
//     U   u = e W, in S (one barrier) or in T (two barriers)       vocabulary_input_product
//     dX  = sum over shards of c u + d W_y - g eps/V sum_j W_j     vocabulary_input_gradient
//     dW  = e^T (c X), row y_n += d_n X_n, - eps/V sum_n g_n X_n   vocabulary_weight_gradient
//
// The label is kept apart: its entry of e is exactly 0 and its exponential is not in a, the sum of
// e; its logit is a statistic of its own. So softmax - 1 of a confident token is formed from the
// other exponentials, without a difference of two numbers near 1, and no digits are lost however
// confident. e is unnormalized, so nothing of shape (N, v) is touched after S. Every function is
// a function of its arguments only (same bits for any number of threads), so the one- and the
// two-barrier algorithm give the same bits.
//
// Soft-capped logits z = c tanh(X W^T / c): e is stored times dz/d(X W^T) = 1 - (z / c)^2, and d
// carries the label's; everything after S is as above. (Where a loss depends on the entropy, which
// needs log e, weigh_by_entropy() multiplies by it.) A temperature divides z, and c and d carry
// its slope. Where some tokens are not allowed, their z is -infinity and their e is 0.
//
// N tokens, h hidden size, v rows of this shard, V rows over all shards, K shards.
// Loss of token n, with log Z the log of the softmax denominator over all V logits:
//
//     loss_n = log Z - (1 - eps) z_y - eps/V sum_j z_j + z_loss (log Z)^2
#pragma once

#include "vocabpipe/token_record.hpp"

#include <concepts>
#include <cstdint>
#include <span>

namespace vocabpipe::kernels {

/// Columns that the statistics of a row always have (also StepSizes::kStatistics): m; a = sum exp(z
/// - m) over all rows of the shard but the label's; z_y, or 0 if this shard does not own the label;
/// sum of z, or 0 without label smoothing. An empty shard has m = -infinity, a = 0.
inline constexpr int64_t kStatistics = 4;

/// Rows [first_row, first_row + rows) of a vocabulary of `vocab_size` rows over all shards.
struct VocabularyShard {
    int64_t first_row = 0;   ///< of the whole vocabulary
    int64_t rows = 0;        ///< v
    int64_t vocab_size = 0;  ///< V

    /// Whether the label's row is in this shard. No shard owns a negative label.
    [[nodiscard]] constexpr bool owns(int32_t label) const {
        return label >= 0 && label >= first_row && label < first_row + rows;
    }
};

/// Additions to the plain cross-entropy.
struct LossOptions {
    /// eps in [0, 1): spread uniformly over all V rows, the label included.
    float label_smoothing = 0;
    float z_loss = 0;  ///< weight of (log Z)^2
    /// c: logits are c tanh(x w / c) (Gemma 2); 0: x w. Excludes label smoothing, for which the
    /// gradient would need another product.
    float logit_softcap = 0;
    /// What combine_statistics() makes for every token. The loss is always among them.
    TokenRecords records = {TokenRecord::loss};
    /// Divides the logits; excludes label smoothing where it is not 1.
    float temperature = 1;
    /// Bit j % 32 of word j / 32, in the device's memory: whether row j of the shard is allowed;
    /// null: all are. Excludes label smoothing, as a sum with -infinity says nothing.
    const uint32_t* allowed = nullptr;
    /// Soft-capped: e is stored without dz/d(x w), by which weigh_by_entropy() then multiplies.
    bool caps_later = false;

    /// Member by member.
    bool operator==(const LossOptions&) const = default;
};

/// The column of sum exp(z - m) (z - m), over all rows of the shard but the label's; -1: there is
/// none, as only the entropy needs it.
[[nodiscard]] constexpr int64_t entropy_column(const TokenRecords& records) {
    return records.has(TokenRecord::entropy) ? kStatistics : -1;
}

/// The first of two columns of the two largest logits of the shard, the label's included, the
/// larger one first; -infinity if it has fewer. -1: there are none, as only the margin needs them.
[[nodiscard]] constexpr int64_t top_two_column(const TokenRecords& records) {
    if (!records.has(TokenRecord::margin)) return -1;
    return kStatistics + (records.has(TokenRecord::entropy) ? 1 : 0);
}

/// The first of 2 k columns of the k largest logits of the shard, the label's included, the largest
/// one first, and of equal ones that with the lower id: the logits, then the ids, which fp32 holds
/// exactly. -infinity and id -1 if it has fewer. -1: there are none, as only top_logprobs needs
/// them.
[[nodiscard]] constexpr int64_t best_column(const TokenRecords& records) {
    if (!records.has(TokenRecord::top_logprobs)) return -1;
    return kStatistics + (records.has(TokenRecord::entropy) ? 1 : 0) +
           (records.has(TokenRecord::margin) ? 2 : 0);
}

/// Columns of the statistics that these records need.
[[nodiscard]] constexpr int64_t statistics_columns(const TokenRecords& records) {
    return kStatistics + (records.has(TokenRecord::entropy) ? 1 : 0) +
           (records.has(TokenRecord::margin) ? 2 : 0) + 2 * records.best_count();
}

/// Gradients of the total loss by what a token's loss is a function of.
struct TokenGradients {
    /// (N): g_n, by the loss: -log p of the label and what LossOptions add to it.
    std::span<const float> loss;
    /// (N): by the entropy; empty: the loss does not depend on it. Excludes label smoothing and
    /// z-loss; soft-capped logits need LossOptions::caps_later.
    std::span<const float> entropy = {};

    /// None: of no token.
    TokenGradients() = default;
    /// Those of a loss that does not depend on the entropy.
    template <std::convertible_to<std::span<const float>> Weights>
    TokenGradients(const Weights& weights) : loss(weights) {}
    /// Both; an empty second span for none.
    TokenGradients(std::span<const float> by_loss, std::span<const float> by_entropy)
        : loss(by_loss), entropy(by_entropy) {}
};

/// Throws UsageError for a label >= vocab_size.
void check_labels(std::span<const int32_t> labels, const VocabularyShard& shard);

}  // namespace vocabpipe::kernels
