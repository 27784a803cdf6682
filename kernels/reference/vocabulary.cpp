// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/reference/elements.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::reference {

namespace {

double rounded_to(DType type, double value) {
    switch (type) {
        case DType::fp32:
            return static_cast<float>(value);
        case DType::bf16:
            return to_float(to_bf16(static_cast<float>(value)));
        case DType::fp64:
            break;
    }
    return value;
}

int64_t token_count(std::span<const int32_t> labels) {
    return static_cast<int64_t>(labels.size());
}

double weight_of(std::span<const int32_t> labels, std::span<const float> g, int64_t n) {
    const auto at = static_cast<size_t>(n);
    return labels[at] < 0 ? 0.0 : g[at];
}

/// Column `row - first_row` of the label within the shard; -1 if another shard owns it, or none.
int64_t column_of(std::span<const int32_t> labels, const VocabularyShard& shard, int64_t n) {
    const int32_t label = labels[static_cast<size_t>(n)];
    return shard.owns(label) ? label - shard.first_row : -1;
}

/// d z / d (x w) of a soft-capped logit z, from z; 1 without a cap.
double softcap_slope(double z, double cap) {
    return cap > 0 ? 1.0 - (z / cap) * (z / cap) : 1.0;
}

/// Logits and ids, by (logit descending, id ascending).
using Ranking = std::vector<std::pair<double, int64_t>>;

void sort(Ranking& tokens) {
    std::ranges::sort(tokens, [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
}

/// One row over all shards.
struct RowTotals {
    double max = 0;     ///< M
    double others = 0;  ///< sum over all rows but the label's of exp(z - M)
    double label = 0;   ///< exp(z_y - M)
    double label_logit = 0;
    double logit_sum = 0;
    double weighted = 0;  ///< sum over all rows of exp(z - M) (z - M), for the entropy
    double first = -std::numeric_limits<double>::infinity();  ///< logit of all, for the margin
    double second = -std::numeric_limits<double>::infinity();

    void add_top(double logit) {
        if (logit > first) {
            second = first;
            first = logit;
        } else if (logit > second) {
            second = logit;
        }
    }
    [[nodiscard]] double entropy() const { return std::log(sum()) - weighted / sum(); }
    /// P1 - P2.
    [[nodiscard]] double margin() const {
        return -std::exp(first - max) / sum() * std::expm1(second - first);
    }
    [[nodiscard]] double sum() const { return others + label; }  ///< A
    [[nodiscard]] double log_normaliser() const { return max + std::log(sum()); }
    /// -log p_y, by the form that does not cancel.
    [[nodiscard]] double negative_log_likelihood() const {
        return label > others ? std::log1p(others / label) : log_normaliser() - label_logit;
    }
};

RowTotals fold_statistics(ConstTensor by_shard, std::span<const int32_t> labels,
                          const LossOptions& options, int64_t n) {
    const int64_t entropy = entropy_column(options.records);
    const int64_t top_two = top_two_column(options.records);
    const int64_t tokens = token_count(labels);
    RowTotals totals;
    totals.max = -std::numeric_limits<double>::infinity();
    for (int64_t row = n; row < by_shard.rows; row += tokens) {
        totals.max = std::max(totals.max, get(by_shard, row, 0));
    }
    for (int64_t row = n; row < by_shard.rows; row += tokens) {
        totals.others += get(by_shard, row, 1) * std::exp(get(by_shard, row, 0) - totals.max);
        totals.label_logit += get(by_shard, row, 2);
        totals.logit_sum += get(by_shard, row, 3);
        for (int64_t i = 0; top_two >= 0 && i < 2; ++i) {
            totals.add_top(get(by_shard, row, top_two + i));
        }
        if (entropy >= 0 && get(by_shard, row, 1) > 0) {
            const double m = get(by_shard, row, 0) - totals.max;
            totals.weighted +=
                std::exp(m) * (get(by_shard, row, entropy) + get(by_shard, row, 1) * m);
        }
    }
    if (labels[static_cast<size_t>(n)] >= 0) {
        totals.label = std::exp(totals.label_logit - totals.max);
        if (totals.label > 0) {
            totals.weighted += totals.label * (totals.label_logit - totals.max);
        }
    }
    return totals;
}

}  // namespace

int64_t vocabulary_score_workspace_bytes(int64_t /*tokens*/, int64_t /*rows*/, DType /*type*/) {
    return 0;
}

/// m is exactly max_j z_j.
void vocabulary_score(Context& /*ctx*/, ConstTensor x, ConstTensor w,
                      std::span<const int32_t> labels, const VocabularyShard& shard,
                      const LossOptions& options, Tensor exp_logits, Tensor statistics,
                      Tensor logits, std::span<std::byte> /*workspace*/) {
    check_labels(labels, shard);
    const auto cap = static_cast<double>(options.logit_softcap);
    std::vector<double> z(static_cast<size_t>(shard.rows));
    for (int64_t n = 0; n < token_count(labels); ++n) {
        double max = -std::numeric_limits<double>::infinity();
        double logit_sum = 0;
        for (int64_t j = 0; j < shard.rows; ++j) {
            double logit = 0;
            for (int64_t i = 0; i < x.cols; ++i) logit += get(x, n, i) * get(w, j, i);
            if (cap > 0) logit = cap * std::tanh(logit / cap);
            logit /= options.temperature;
            const bool allowed =
                options.allowed == nullptr || (options.allowed[j / 32] >> (j % 32) & 1U) != 0;
            if (!allowed) logit = -std::numeric_limits<double>::infinity();
            z[static_cast<size_t>(j)] = logit;
            max = std::max(max, logit);
            logit_sum += logit;
        }
        const int64_t label = column_of(labels, shard, n);
        // No logit above -infinity: everything is 0, as in an empty shard.
        const bool none = std::isinf(max);
        double sum = 0;
        double weighted = 0;
        for (int64_t j = 0; j < shard.rows; ++j) {
            const double logit = z[static_cast<size_t>(j)];
            const double e = none ? 0 : std::exp(logit - max);
            if (j != label) sum += e;
            if (j != label && e > 0) weighted += e * (logit - max);
            const double slope = options.caps_later ? 1
                                 : e > 0 ? softcap_slope(logit * options.temperature, cap)
                                         : 0;
            set(exp_logits, n, j, j == label ? 0.0 : e * slope);
            if (logits) set(logits, n, j, logit);
        }
        set(statistics, n, 0, max);
        set(statistics, n, 1, sum);
        set(statistics, n, 2, label >= 0 ? z[static_cast<size_t>(label)] : 0.0);
        set(statistics, n, 3, options.label_smoothing > 0 ? logit_sum : 0.0);
        const int64_t entropy = entropy_column(options.records);
        if (entropy >= 0) set(statistics, n, entropy, weighted);
        const int64_t top_two = top_two_column(options.records);
        if (top_two >= 0) {
            RowTotals top;
            for (const double logit : z) top.add_top(logit);
            set(statistics, n, top_two, top.first);
            set(statistics, n, top_two + 1, top.second);
        }
        const int64_t best = best_column(options.records);
        const int64_t count = options.records.best_count();
        Ranking ranking;
        for (int64_t j = 0; j < shard.rows && count > 0; ++j) {
            const double logit = z[static_cast<size_t>(j)];
            if (!std::isinf(logit)) ranking.emplace_back(logit, shard.first_row + j);
        }
        sort(ranking);
        for (int64_t i = 0; i < count; ++i) {
            const bool exists = i < std::ssize(ranking);
            const auto at = static_cast<size_t>(i);
            set(statistics, n, best + i,
                exists ? ranking[at].first : -std::numeric_limits<double>::infinity());
            set(statistics, n, best + count + i,
                exists ? static_cast<double>(ranking[at].second) : -1.0);
        }
    }
}

void vocabulary_input_product(Context& /*ctx*/, ConstTensor exp_logits, ConstTensor w, Tensor u) {
    for (int64_t n = 0; n < u.rows; ++n) {
        for (int64_t i = 0; i < u.cols; ++i) {
            double sum = 0;
            for (int64_t j = 0; j < exp_logits.cols; ++j)
                sum += get(exp_logits, n, j) * get(w, j, i);
            set(u, n, i, sum);
        }
    }
}

void token_record(Context& /*ctx*/, ConstTensor by_shard, std::span<const int32_t> labels,
                  const VocabularyShard& mine, const LossOptions& options, TokenRecord record,
                  std::span<double> values) {
    const double eps = options.label_smoothing;
    for (int64_t n = 0; n < token_count(labels); ++n) {
        double& value = values[static_cast<size_t>(n)];
        value = 0;
        if (labels[static_cast<size_t>(n)] < 0) continue;
        const RowTotals totals = fold_statistics(by_shard, labels, options, n);
        const double log_z = totals.log_normaliser();
        switch (record) {
            case TokenRecord::loss:
                value = totals.negative_log_likelihood() + options.z_loss * log_z * log_z;
                if (eps > 0) {
                    value += eps * totals.label_logit -
                             eps / static_cast<double>(mine.vocab_size) * totals.logit_sum;
                }
                break;
            case TokenRecord::logprob:
                value = -totals.negative_log_likelihood();
                break;
            case TokenRecord::entropy:
                value = totals.entropy();
                break;
            case TokenRecord::logsumexp:
                value = log_z;
                break;
            case TokenRecord::margin:
                value = totals.margin();
                break;
            case TokenRecord::top_logprobs:  // no single number
            case TokenRecord::label_rank:    // of logits
                break;
        }
    }
}

namespace {

/// (2 k N): the merged lists of all shards.
void best_tokens(ConstTensor by_shard, std::span<const int32_t> labels, const LossOptions& options,
                 std::span<float> values) {
    const int64_t column = best_column(options.records);
    const int64_t count = options.records.best_count();
    const int64_t tokens = token_count(labels);
    for (int64_t n = 0; n < tokens; ++n) {
        Ranking ranking;
        for (int64_t row = n; row < by_shard.rows; row += tokens) {
            for (int64_t i = 0; i < count; ++i) {
                const auto id = static_cast<int64_t>(get(by_shard, row, column + count + i));
                if (id >= 0) ranking.emplace_back(get(by_shard, row, column + i), id);
            }
        }
        sort(ranking);
        const RowTotals totals = fold_statistics(by_shard, labels, options, n);
        const int32_t label = labels[static_cast<size_t>(n)];
        for (int64_t i = 0; i < count; ++i) {
            const bool exists = i < std::ssize(ranking);
            const auto& [logit, id] =
                exists ? ranking[static_cast<size_t>(i)]
                       : std::pair(-std::numeric_limits<double>::infinity(), int64_t{-1});
            const double log_p =
                id == label ? -totals.negative_log_likelihood() : logit - totals.log_normaliser();
            const auto at = static_cast<size_t>(i * tokens + n);
            values[at] = label < 0 ? 0.0F : static_cast<float>(log_p);
            values[at + static_cast<size_t>(count * tokens)] =
                label < 0 ? 0.0F : static_cast<float>(id);
        }
    }
}

}  // namespace

void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                        const TokenGradients& gradients, const VocabularyShard& mine, int my_shard,
                        const LossOptions& options, Tensor factors, std::span<float> records) {
    check_labels(labels, mine);
    const int64_t tokens = token_count(labels);
    for (int64_t n = 0; n < tokens; ++n) {
        const RowTotals totals = fold_statistics(by_shard, labels, options, n);
        const int64_t row = my_shard * tokens + n;
        const bool by_entropy = !gradients.entropy.empty();
        const double weight = weight_of(labels, gradients.loss, n);
        const double eta = by_entropy ? weight_of(labels, gradients.entropy, n) : 0;
        double c = 0;
        double d = 0;
        double h = 0;
        if (by_entropy && mine.rows > 0) {
            // dz_j = p_j (g - eta (log p_j + H)) - [j = y] g, with log p_j = m + log e_j - log Z.
            const double m = get(by_shard, row, 0);
            const double share = std::exp(m - totals.log_normaliser());
            c = share * (weight - eta * (m - totals.log_normaliser() + totals.entropy()));
            h = -share * eta;
            if (column_of(labels, mine, n) >= 0) {
                const double log_p = -totals.negative_log_likelihood();
                d = -weight * totals.others / totals.sum() -
                    eta * std::exp(log_p) * (log_p + totals.entropy());
            }
            c /= options.temperature;
            d *= softcap_slope(totals.label_logit * options.temperature, options.logit_softcap) /
                 options.temperature;
            h /= options.temperature;
        } else if (weight != 0) {
            // s = d loss / d log Z. d_n is g (s p_y - (1 - eps)) with p_y = 1 - others / A.
            const double excess = 2.0 * options.z_loss * totals.log_normaliser();  // s - 1
            c = weight * (1 + excess) * std::exp(get(by_shard, row, 0) - totals.max) /
                totals.sum() / options.temperature;
            if (column_of(labels, mine, n) >= 0) {
                d = weight *
                    (excess + options.label_smoothing -
                     (1 + excess) * totals.others / totals.sum()) *
                    softcap_slope(totals.label_logit * options.temperature, options.logit_softcap) /
                    options.temperature;
            }
        }
        if (!factors) continue;
        set(factors, n, 0, c);
        set(factors, n, 1, d);
        if (by_entropy) {
            set(factors, n, 2, h);
            set(factors, n, 3, mine.rows > 0 ? get(by_shard, row, 0) : 0.0);
        }
    }
    if (records.empty()) return;
    std::vector<double> exact(static_cast<size_t>(tokens));
    for (const TokenRecord record : options.records.list()) {
        const std::span<float> values =
            records.subspan(static_cast<size_t>(options.records.index_of(record)) * exact.size(),
                            static_cast<size_t>(options.records.numbers_of(record)) * exact.size());
        if (record == TokenRecord::label_rank) continue;
        if (record == TokenRecord::top_logprobs) {
            best_tokens(by_shard, labels, options, values);
            continue;
        }
        token_record(ctx, by_shard, labels, mine, options, record, exact);
        for (size_t n = 0; n < exact.size(); ++n) values[n] = static_cast<float>(exact[n]);
    }
}

void label_ranks(Context& /*ctx*/, ConstTensor logits, ConstTensor by_shard,
                 std::span<const int32_t> labels, const VocabularyShard& shard,
                 std::span<float> counts) {
    const int64_t tokens = token_count(labels);
    for (int64_t n = 0; n < tokens; ++n) {
        const int64_t label = labels[static_cast<size_t>(n)];
        float& count = counts[static_cast<size_t>(n)];
        count = 0;
        if (label < 0) continue;
        double z_y = 0;
        for (int64_t row = n; row < by_shard.rows; row += tokens) z_y += get(by_shard, row, 2);
        for (int64_t j = 0; j < shard.rows; ++j) {
            const double z = get(logits, n, j);
            const bool before =
                z > z_y || (z == z_y && shard.first_row + j < label && !std::isinf(z));
            if (before || shard.first_row + j == label) ++count;
        }
    }
}

void weigh_by_entropy(Context& /*ctx*/, const LossOptions& options, Tensor exp_logits,
                      Tensor factors) {
    for (int64_t n = 0; n < exp_logits.rows; ++n) {
        for (int64_t j = 0; j < exp_logits.cols; ++j) {
            const double e = get(exp_logits, n, j);
            const double log_e = e > 0 ? std::log(e) : 0;
            const double slope = softcap_slope((get(factors, n, 3) + log_e) * options.temperature,
                                               options.logit_softcap);
            set(exp_logits, n, j,
                e > 0 ? e * (get(factors, n, 0) + get(factors, n, 2) * log_e) * slope : 0);
        }
        set(factors, n, 0, 1);
    }
}

int64_t vocabulary_input_gradient_workspace_bytes(int64_t /*hidden*/) {
    return 0;
}

void vocabulary_input_gradient(Context& /*ctx*/, Tensor u, ConstTensor factors, ConstTensor w,
                               std::span<const int32_t> labels, std::span<const float> g,
                               const VocabularyShard& shard, const LossOptions& options,
                               std::span<std::byte> /*workspace*/) {
    const double uniform = options.label_smoothing / static_cast<double>(shard.vocab_size);
    for (int64_t i = 0; i < u.cols; ++i) {
        double row_sum = 0;
        if (options.label_smoothing > 0) {
            for (int64_t j = 0; j < shard.rows; ++j) row_sum += get(w, j, i);
        }
        for (int64_t n = 0; n < token_count(labels); ++n) {
            double value = get(factors, n, 0) * get(u, n, i);
            const int64_t label = column_of(labels, shard, n);
            if (label >= 0) value += get(factors, n, 1) * get(w, label, i);
            set(u, n, i, value - weight_of(labels, g, n) * uniform * row_sum);
        }
    }
}

int64_t vocabulary_weight_gradient_workspace_bytes(int64_t /*tokens*/, int64_t /*hidden*/,
                                                   DType /*type*/) {
    return 0;
}

void vocabulary_weight_gradient(Context& /*ctx*/, ConstTensor x, ConstTensor exp_logits,
                                ConstTensor factors, std::span<const int32_t> labels,
                                std::span<const float> g, const VocabularyShard& shard,
                                const LossOptions& options, Tensor dw, bool accumulate,
                                std::span<std::byte> /*workspace*/) {
    const int64_t tokens = token_count(labels);
    const double uniform = options.label_smoothing / static_cast<double>(shard.vocab_size);
    std::vector<double> column(static_cast<size_t>(shard.rows));
    for (int64_t i = 0; i < x.cols; ++i) {
        for (int64_t j = 0; j < shard.rows; ++j) {
            column[static_cast<size_t>(j)] = start(dw, j, i, accumulate);
        }
        double weighted_sum = 0;
        for (int64_t n = 0; n < tokens; ++n) {
            const double scaled = rounded_to(x.dtype, get(factors, n, 0) * get(x, n, i));
            for (int64_t j = 0; j < shard.rows; ++j) {
                column[static_cast<size_t>(j)] += get(exp_logits, n, j) * scaled;
            }
            weighted_sum += weight_of(labels, g, n) * get(x, n, i);
        }
        for (int64_t n = 0; n < tokens; ++n) {
            const int64_t label = column_of(labels, shard, n);
            if (label >= 0) column[static_cast<size_t>(label)] += get(factors, n, 1) * get(x, n, i);
        }
        for (int64_t j = 0; j < shard.rows; ++j) {
            set(dw, j, i, column[static_cast<size_t>(j)] - uniform * weighted_sum);
        }
    }
}

}  // namespace vocabpipe::kernels::reference
