// SPDX-License-Identifier: Apache-2.0
// Logits that fp32 and bf16 kernels form without rounding, and the records that textbook formulas
// in fp64 make of all of them.
#pragma once

#include "tests/conformance/vocabulary_oracle.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace vocabpipe::kernels::test {

/// Those that are one number of all statistics.
inline constexpr TokenRecords kAllRecords{TokenRecord::loss, TokenRecord::logprob,
                                          TokenRecord::entropy, TokenRecord::logsumexp,
                                          TokenRecord::margin};

struct RecordsCase {
    const char* name;
    std::vector<int64_t> shard_rows;
    int64_t tokens = 9;
    int levels = 9;
    float softcap = 0;
    float temperature = 1;
    /// Every how many tokens of the vocabulary one is allowed, the labels besides; 0: all are.
    int64_t allowed_every = 0;
    /// A row whose logit is greater by `lead` than its products say, and that is every other
    /// token's label; -1: none.
    int64_t favorite = -1;
    double lead = 32;
    DType type = DType::fp32;

    [[nodiscard]] int64_t vocab() const {
        return std::accumulate(shard_rows.begin(), shard_rows.end(), int64_t{0});
    }
};

inline const std::vector<RecordsCase>& records_cases() {
    static const std::vector<RecordsCase> cases{
        {.name = "one_shard", .shard_rows = {50}},
        {.name = "one_token", .shard_rows = {1}},
        {.name = "a_token_each", .shard_rows = {1, 1}},
        {.name = "empty_shards", .shard_rows = {0, 37, 0, 1, 12}},
        {.name = "ties", .shard_rows = {16, 17, 18, 19}, .levels = 2},
        {.name = "several_chunks", .shard_rows = {301, 2500}, .tokens = 3},
        {.name = "capped", .shard_rows = {40, 41}, .softcap = 3},
        {.name = "capped_with_ties", .shard_rows = {33, 0, 8}, .levels = 3, .softcap = 2},
        {.name = "bf16", .shard_rows = {64, 65}, .type = DType::bf16},
        {.name = "bf16_many_tokens",
         .shard_rows = {300},
         .tokens = 70,
         .levels = 3,
         .type = DType::bf16},
        // p = 1 - 1e-9 and less of a rest: the label, and for other tokens not the label
        {.name = "confident", .shard_rows = {505, 504}, .favorite = 700},
        {.name = "confident_bf16", .shard_rows = {1009}, .favorite = 3, .type = DType::bf16},
        {.name = "rises_late",
         .shard_rows = {3000},
         .tokens = 3,
         .favorite = 2999,
         .lead = 128,
         .type = DType::bf16},
        {.name = "cold", .shard_rows = {505, 504}, .temperature = 0.01F},
        {.name = "hot", .shard_rows = {505, 504}, .temperature = 100},
        {.name = "capped_and_hot", .shard_rows = {40, 41}, .softcap = 3, .temperature = 7},
        {.name = "cold_bf16", .shard_rows = {1009}, .temperature = 0.01F, .type = DType::bf16},
        {.name = "few_allowed", .shard_rows = {505, 504}, .allowed_every = 13},
        {.name = "first_chunk_forbidden",
         .shard_rows = {300, 5000},
         .tokens = 3,
         .temperature = 0.5F,
         .allowed_every = 4999,
         .type = DType::bf16},
        {.name = "capped_and_forbidden", .shard_rows = {90}, .softcap = 3, .allowed_every = 5},
        {.name = "v262144", .shard_rows = {131072, 131072}, .tokens = 2, .favorite = 200000},
        {.name = "v262144_hot_bf16",
         .shard_rows = {262144},
         .tokens = 2,
         .temperature = 100,
         .type = DType::bf16},
    };
    return cases;
}

/// x and w are small multiples of 1/4, so every sum of products is exact, in any order; `levels`
/// small: many tokens have equal logits. LossOptions::allowed is not set: see allowed_in().
struct RecordsProblem : Problem {
    std::vector<bool> allowed;

    RecordsProblem(const RecordsCase& c, uint64_t seed)
        : Problem(random_problem(
              seed, c.tokens, kHidden, c.vocab(), c.type, 1,
              {.logit_softcap = c.softcap, .records = kAllRecords, .temperature = c.temperature},
              3)) {
        std::mt19937_64 random(seed + 1);
        const auto value = [&] {
            return (static_cast<double>(random() % static_cast<uint64_t>(c.levels)) -
                    c.levels / 2) /
                   4.0;
        };
        for (int64_t i = 0; i < kHidden; ++i) {
            for (int64_t n = 0; n < tokens(); ++n) x.set(n, i, value());
            for (int64_t j = 0; j < vocab(); ++j) w.set(j, i, value());
        }
        for (int64_t n = 0; c.favorite >= 0 && n < tokens(); ++n) {
            x.set(n, 0, c.lead);
            if (n % 2 == 0) labels[static_cast<size_t>(n)] = static_cast<int32_t>(c.favorite);
        }
        for (int64_t j = 0; c.favorite >= 0 && j < vocab(); ++j) w.set(j, 0, j == c.favorite);
        allowed.assign(static_cast<size_t>(vocab()), c.allowed_every == 0);
        for (int64_t j = c.allowed_every - 1; c.allowed_every > 0 && j < vocab();
             j += c.allowed_every) {
            allowed[static_cast<size_t>(j)] = true;
        }
        for (const int32_t label : labels) {
            if (label >= 0) allowed[static_cast<size_t>(label)] = true;
        }
    }

    /// LossOptions::allowed of a shard.
    [[nodiscard]] std::vector<uint32_t> allowed_in(const VocabularyShard& shard) const {
        std::vector<uint32_t> words(static_cast<size_t>(shard.rows / 32 + 1));
        for (int64_t j = 0; j < shard.rows; ++j) {
            if (allowed[static_cast<size_t>(shard.first_row + j)]) words[j / 32] |= 1U << (j % 32);
        }
        return words;
    }

    /// Logits of the rows [first, first + rows) of the vocabulary: all logits of token n.
    [[nodiscard]] std::vector<double> logits(int64_t n, int64_t first, int64_t rows) const {
        std::vector<double> z;
        for (int64_t j = first; j < first + rows; ++j) {
            double logit = 0;
            for (int64_t i = 0; i < hidden(); ++i) logit += x.get(n, i) * w.get(j, i);
            const double cap = options.logit_softcap;
            if (cap > 0) logit = cap * std::tanh(logit / cap);
            logit /= options.temperature;
            z.push_back(allowed[static_cast<size_t>(j)] ? logit
                                                        : -std::numeric_limits<double>::infinity());
        }
        return z;
    }

    static constexpr int64_t kHidden = 6;
};

/// A record and the bound of its error.
struct ExpectedRecord {
    double value = 0;
    double bound = 0;
};

/// [record] of token n. A logit is off by some units in the last place of the largest, its
/// exponential as much and a few units more, a sum of V of them by a random walk; the logarithm of
/// p of a confident label by what the sum of the others is off, which is far smaller.
[[nodiscard]] inline std::array<ExpectedRecord, kEveryTokenRecord.size()> expected_records(
    const RecordsProblem& problem, int64_t n) {
    const int32_t label = problem.labels[static_cast<size_t>(n)];
    if (label < 0) return {};
    const std::vector<double> z = problem.logits(n, 0, problem.vocab());
    const auto best = static_cast<size_t>(std::ranges::max_element(z) - z.begin());
    double others = 0, second = -std::numeric_limits<double>::infinity(), largest = 0;
    for (size_t j = 0; j < z.size(); ++j) {
        if (!std::isinf(z[j])) largest = std::max(largest, std::abs(z[j]));
        if (j == best) continue;
        others += std::exp(z[j] - z[best]);
        second = std::max(second, z[j]);
    }
    // log Z - z of the best token, to the last digit however confident the model is.
    const double log_z_best = std::log1p(others);
    double entropy = 0, rest = 0, distance = 0;
    const double z_y = z[static_cast<size_t>(label)];
    for (size_t j = 0; j < z.size(); ++j) {
        if (std::isinf(z[j])) continue;
        const double p = std::exp(z[j] - z[best] - log_z_best);
        entropy += p * (log_z_best + (z[best] - z[j]));
        if (std::ssize(z) > 1 && j != static_cast<size_t>(label)) rest += p;
        distance += p * std::abs(z[j] - z_y);
    }
    const double vocab = static_cast<double>(problem.vocab());
    const double logit =
        kEps32 *
        (8 * largest + (problem.options.logit_softcap > 0
                            ? 16 * problem.options.logit_softcap / problem.options.temperature
                            : 0));
    const double error = 4 * logit + kEps32 * (32 + 8 * std::sqrt(vocab));
    const double loss = log_z_best + (z[best] - z_y);
    const double first = 1 / (1 + others);
    const bool confident = rest < 0.5;
    std::array<ExpectedRecord, kEveryTokenRecord.size()> found;
    const auto set = [&](TokenRecord record, double value, double bound) {
        // Exponentials below the least normal number may be 0.
        const double tiny = 0x1p-126 * vocab * (1 + 2 * largest);
        found[static_cast<size_t>(record)] = {value, bound + 4 * kEps32 * std::abs(value) + tiny};
    };
    set(TokenRecord::loss, loss, error * rest);
    set(TokenRecord::logprob, -loss, error * rest);
    set(TokenRecord::entropy, entropy, 2 * error * ((confident ? rest : 1) + distance));
    set(TokenRecord::logsumexp, log_z_best + z[best], error);
    set(TokenRecord::margin, first * -std::expm1(second - z[best]), 2 * error * first);
    return found;
}

}  // namespace vocabpipe::kernels::test
