// SPDX-License-Identifier: Apache-2.0
// The output layer (projection, softmax, cross-entropy) of one vocabulary shard in row-factor
// form. Any negative label is ignored: it belongs to no shard, its loss is 0 and its g counts as
// 0.
//
//     S   z = X W^T, e = exp(z - m), and four numbers per row     vocabulary_score
//     C1  all-gather of those numbers                              (transport)
//         M, A over all shards; c_n, d_n per row                   combine_statistics
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
// carries the label's; everything after S is as above.
//
// N tokens, h hidden size, v rows of this shard, V rows over all shards, K shards.
// Loss of token n, with log Z the log of the softmax denominator over all V logits:
//
//     loss_n = log Z - (1 - eps) z_y - eps/V sum_j z_j + z_loss (log Z)^2
#pragma once

#include <cstdint>
#include <span>

namespace vocabpipe::kernels {

/// Columns of the statistics of one row (also StepSizes::kStatistics): m; a = sum exp(z - m) over
/// all rows of the shard but the label's; z_y, or 0 if this shard does not own the label; sum of z,
/// or 0 without label smoothing. An empty shard has m = -infinity, a = 0.
inline constexpr int64_t kStatistics = 4;
/// With LossOptions::top_two: after those the two largest logits of the shard, the label's
/// included, the larger one first; -infinity if it has fewer.
inline constexpr int64_t kStatisticsWithTopTwo = 6;

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
    /// Adds the two largest logits to the statistics; combine_statistics() then returns by how much
    /// the first is likelier than the second, without sending logits. For scoring samples.
    bool top_two = false;

    /// Member by member.
    bool operator==(const LossOptions&) const = default;
};

/// Columns of the statistics with these options.
[[nodiscard]] constexpr int64_t statistics_columns(const LossOptions& options) {
    return options.top_two ? kStatisticsWithTopTwo : kStatistics;
}

/// Throws UsageError for a label >= vocab_size.
void check_labels(std::span<const int32_t> labels, const VocabularyShard& shard);

}  // namespace vocabpipe::kernels
