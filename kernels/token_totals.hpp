// SPDX-License-Identifier: Apache-2.0
// Statistics of all shards, folded to what one token's records and factors are made of: for hosts
// and GPUs alike. In double: rounding must not lose terms far from the maximum.
#pragma once

#include <math.h>

#include <cstdint>

#include "kernels/host_and_device.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels {

/// Statistics of all shards, shard by shard: row k tokens + n is token n's in shard k.
struct StatisticsOfShards {
    const float* data = nullptr;
    int64_t stride = 0;  ///< floats between rows
    int64_t rows = 0;    ///< shards x tokens
    int64_t tokens = 0;
    int64_t entropy = -1;  ///< entropy_column()
    int64_t top_two = -1;  ///< top_two_column()
    int64_t best = -1;     ///< best_column()
    int64_t best_count = 0;
};

/// Terms of the loss besides the cross-entropy.
struct LossTerms {
    double smoothing = 0;    ///< LossOptions::label_smoothing
    double uniform = 0;      ///< that over V
    double z_loss = 0;       ///< LossOptions::z_loss
    double temperature = 1;  ///< LossOptions::temperature
    double softcap = 0;      ///< LossOptions::logit_softcap
};

[[nodiscard]] inline LossTerms loss_terms(const LossOptions& options,
                                          const VocabularyShard& shard) {
    const double smoothing = options.label_smoothing;
    return {.smoothing = smoothing,
            .uniform = smoothing / static_cast<double>(shard.vocab_size),
            .z_loss = options.z_loss,
            .temperature = options.temperature,
            .softcap = options.logit_softcap};
}

[[nodiscard]] inline StatisticsOfShards statistics_of_shards(ConstTensor by_shard, int64_t tokens,
                                                             const LossOptions& options) {
    return {.data = by_shard.as<float>(),
            .stride = by_shard.stride,
            .rows = by_shard.rows,
            .tokens = tokens,
            .entropy = entropy_column(options.records),
            .top_two = top_two_column(options.records),
            .best = best_column(options.records),
            .best_count = options.records.best_count()};
}

/// A token over all shards.
struct TokenTotals {
    double max = -INFINITY;  ///< M
    double others = 0;       ///< sum over all rows but the label's of ::exp(z - M)
    double label = 0;        ///< ::exp(z_y - M); 0 for an ignored label
    double label_logit = 0;
    double logit_sum = 0;
    double centred = 0;       ///< sum of ::exp(z - M) (z - center()), the label's included
    float first = -INFINITY;  ///< the largest logit
    float second = -INFINITY;

    /// A.
    [[nodiscard]] VOCABPIPE_HOST_AND_DEVICE double sum() const { return others + label; }
    [[nodiscard]] VOCABPIPE_HOST_AND_DEVICE double log_z() const { return max + ::log(sum()); }
    /// Whether the label is likelier than all others together. Logarithms then begin with it, so
    /// that nothing cancels however confident it is.
    [[nodiscard]] VOCABPIPE_HOST_AND_DEVICE bool confident() const { return label > others; }
    [[nodiscard]] VOCABPIPE_HOST_AND_DEVICE double center() const {
        return confident() ? label_logit : max;
    }
    /// -log p of the label.
    [[nodiscard]] VOCABPIPE_HOST_AND_DEVICE double cross_entropy() const {
        return confident() ? ::log1p(others / label) : log_z() - label_logit;
    }
    [[nodiscard]] VOCABPIPE_HOST_AND_DEVICE double entropy() const {
        const double log_of_sum = confident() ? ::log1p(others / label) : ::log(sum());
        const double value = log_of_sum - centred / sum();
        return value < 0 ? 0 : value;  // rounding alone makes it negative; NaN stays
    }
    [[nodiscard]] VOCABPIPE_HOST_AND_DEVICE double margin() const {
        return -::exp(first - max) / sum() * ::expm1(static_cast<double>(second) - first);
    }
};

/// Folds the shards in order. `label`: the token's.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline TokenTotals fold_token(const StatisticsOfShards& of,
                                                                      int64_t n, int32_t label) {
    TokenTotals totals;
    for (int64_t at = n; at < of.rows; at += of.tokens) {
        const double m = of.data[at * of.stride];
        totals.max = totals.max < m ? m : totals.max;
    }
    for (int64_t at = n; at < of.rows; at += of.tokens) {
        const float* const row = of.data + at * of.stride;
        totals.others += row[1] * ::exp(row[0] - totals.max);
        totals.label_logit += row[2];
        totals.logit_sum += row[3];
        for (int64_t i = of.top_two; of.top_two >= 0 && i < of.top_two + 2; ++i) {
            const float z = row[i];
            const float lower = z > totals.first ? totals.first : z;
            totals.first = z > totals.first ? z : totals.first;
            totals.second = lower > totals.second ? lower : totals.second;
        }
    }
    if (label >= 0) totals.label = ::exp(totals.label_logit - totals.max);
    if (of.entropy < 0) return totals;
    const double center = totals.center();
    for (int64_t at = n; at < of.rows; at += of.tokens) {
        const float* const row = of.data + at * of.stride;
        if (row[1] == 0) continue;  // m may be -infinity
        totals.centred +=
            (row[of.entropy] + row[1] * (row[0] - center)) * ::exp(row[0] - totals.max);
    }
    if (totals.label > 0) totals.centred += totals.label * (totals.label_logit - center);
    return totals;
}

/// A list of a token's likeliest tokens in memory, the elements of each half `stride` apart.
struct BestTokens {
    float* logprobs;
    float* ids;
    int64_t stride;
};

/// Merges the lists of the shards of a token whose label counts, and makes log p of their logits.
/// That of the label is its record logprob, which loses no digits.
VOCABPIPE_HOST_AND_DEVICE inline void fold_best(const StatisticsOfShards& of, int64_t n,
                                                const TokenTotals& totals, int32_t label,
                                                const BestTokens& best) {
    const int64_t count = of.best_count;
    int64_t found = 0;
    for (int64_t at = n; at < of.rows; at += of.tokens) {
        const float* const logits = of.data + at * of.stride + of.best;
        const float* const ids = logits + count;
        for (int64_t i = 0; i < count && ids[i] >= 0; ++i) {
            const auto comes_before = [&](int64_t other) {
                const float z = best.logprobs[other * best.stride];
                return logits[i] > z || (logits[i] == z && ids[i] < best.ids[other * best.stride]);
            };
            if (found == count && !comes_before(count - 1)) break;  // nor does what follows
            int64_t place = found < count ? found++ : count - 1;
            for (; place > 0 && comes_before(place - 1); --place) {
                best.logprobs[place * best.stride] = best.logprobs[(place - 1) * best.stride];
                best.ids[place * best.stride] = best.ids[(place - 1) * best.stride];
            }
            best.logprobs[place * best.stride] = logits[i];
            best.ids[place * best.stride] = ids[i];
        }
    }
    const double log_z = totals.log_z();
    for (int64_t i = 0; i < found; ++i) {
        float& value = best.logprobs[i * best.stride];
        const bool is_label = best.ids[i * best.stride] == static_cast<float>(label);
        const double log_p = is_label ? -totals.cross_entropy() : value - log_z;
        value = log_p > 0 ? 0.0F : static_cast<float>(log_p);  // above 0 by rounding only
    }
    for (int64_t i = found; i < count; ++i) {
        best.logprobs[i * best.stride] = -INFINITY;
        best.ids[i * best.stride] = -1;
    }
}

/// A record of a token whose label counts: one number that statistics of all shards give.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline double record_of(TokenRecord record,
                                                                const TokenTotals& totals,
                                                                const LossTerms& terms) {
    switch (record) {
        case TokenRecord::loss: {
            const double log_z = totals.log_z();
            const double loss = totals.cross_entropy() + terms.z_loss * log_z * log_z;
            if (terms.smoothing == 0) return loss;  // the label's logit may be -infinity
            return loss + terms.smoothing * totals.label_logit - terms.uniform * totals.logit_sum;
        }
        case TokenRecord::logprob:
            return -totals.cross_entropy();
        case TokenRecord::entropy:
            return totals.entropy();
        case TokenRecord::logsumexp:
            return totals.log_z();
        case TokenRecord::margin:
            return totals.margin();
        case TokenRecord::top_logprobs:
        case TokenRecord::label_rank:
            break;
    }
    return 0;
}

/// The gradient's factors of a token, of one shard.
struct TokenFactors {
    double softmax = 0;  ///< c
    double label = 0;    ///< d, to be used by the shard that owns the label
    double entropy = 0;  ///< h
};

/// d z / d (x w) of the label's logit but for the temperature: 1 without a soft cap.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline double label_slope(const TokenTotals& totals,
                                                                  const LossTerms& terms) {
    const double tanh =
        terms.softcap > 0 ? totals.label_logit * terms.temperature / terms.softcap : 0.0;
    return 1 - tanh * tanh;
}

/// `m`: the shard's reference point; `weight`: g, not 0.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline TokenFactors factors_of(const TokenTotals& totals,
                                                                       const LossTerms& terms,
                                                                       double m, double weight) {
    // s = d loss / d log Z. d_n is g (s p_y - (1 - eps)) with p_y = 1 - others / A.
    const double excess = 2.0 * terms.z_loss * totals.log_z();  // s - 1
    return {
        .softmax = weight * (1 + excess) * ::exp(m - totals.max) / totals.sum() / terms.temperature,
        .label = weight * (excess + terms.smoothing - (1 + excess) * totals.others / totals.sum()) *
                 label_slope(totals, terms) / terms.temperature};
}

/// The same of a loss that depends on the entropy, too; `entropy_gradient`: eta.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline TokenFactors factors_of(const TokenTotals& totals,
                                                                       const LossTerms& terms,
                                                                       double m, double weight,
                                                                       double entropy_gradient) {
    const double share = ::exp(m - totals.max) / totals.sum() / terms.temperature;
    const double entropy = totals.entropy();
    const double label = totals.label / totals.sum();  // p_y
    const double of_label =
        label > 0 ? label * (entropy - totals.cross_entropy()) * entropy_gradient : 0;
    return {.softmax = share * (weight - entropy_gradient * (m - totals.log_z() + entropy)),
            .label = -(weight * totals.others / totals.sum() + of_label) *
                     label_slope(totals, terms) / terms.temperature,
            .entropy = -share * entropy_gradient};
}

}  // namespace vocabpipe::kernels
