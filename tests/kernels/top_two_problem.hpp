// SPDX-License-Identifier: Apache-2.0
// Logits that fp32 and bf16 kernels form without rounding, and what sorting all of them says.
#pragma once

#include "tests/kernels/vocabulary_oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace vocabpipe::kernels::test {

/// x and w are small multiples of 1/4, so every sum of products is exact, in any order; `levels`
/// small: many tokens have equal logits.
[[nodiscard]] inline Problem exact_problem(uint64_t seed, int64_t tokens, int64_t hidden,
                                           int64_t vocab, DType type, int levels, float softcap) {
    Problem problem = random_problem(seed, tokens, hidden, vocab, type, 1,
                                     {.logit_softcap = softcap, .top_two = true}, 3);
    std::mt19937_64 random(seed + 1);
    const auto value = [&] {
        return (static_cast<double>(random() % static_cast<uint64_t>(levels)) - levels / 2) / 4.0;
    };
    for (int64_t i = 0; i < hidden; ++i) {
        for (int64_t n = 0; n < tokens; ++n) problem.x.set(n, i, value());
        for (int64_t j = 0; j < vocab; ++j) problem.w.set(j, i, value());
    }
    return problem;
}

/// Of the rows [first, first + rows) of the vocabulary: all logits of token n, falling.
[[nodiscard]] inline std::vector<double> sorted_logits(const Problem& problem, int64_t n,
                                                       int64_t first, int64_t rows) {
    std::vector<double> z;
    for (int64_t j = first; j < first + rows; ++j) {
        double logit = 0;
        for (int64_t i = 0; i < problem.hidden(); ++i) {
            logit += problem.x.get(n, i) * problem.w.get(j, i);
        }
        const double cap = problem.options.logit_softcap;
        z.push_back(cap > 0 ? cap * std::tanh(logit / cap) : logit);
    }
    std::ranges::sort(z, std::greater<>());
    return z;
}

/// P1 - P2 of token n.
[[nodiscard]] inline double exact_margin(const Problem& problem, int64_t n) {
    if (problem.labels[static_cast<size_t>(n)] < 0) return 0;
    const std::vector<double> z = sorted_logits(problem, n, 0, problem.vocab());
    double sum = 0;
    for (const double logit : z) sum += std::exp(logit - z.front());
    return (1 - (z.size() > 1 ? std::exp(z[1] - z[0]) : 0)) / sum;
}

struct TopTwoCase {
    std::vector<int64_t> shard_rows;
    int64_t tokens = 9;
    int levels = 9;
    float softcap = 0;
    DType type = DType::fp32;
};

inline const std::vector<TopTwoCase>& top_two_cases() {
    static const std::vector<TopTwoCase> cases{
        {.shard_rows = {50}},
        {.shard_rows = {1}},
        {.shard_rows = {1, 1}},
        {.shard_rows = {0, 37, 0, 1, 12}},
        {.shard_rows = {16, 17, 18, 19}, .levels = 2},  // ties
        {.shard_rows = {301, 2500}, .tokens = 3},       // several chunks
        {.shard_rows = {40, 41}, .softcap = 3},
        {.shard_rows = {33, 0, 8}, .levels = 3, .softcap = 2},
        {.shard_rows = {64, 65}, .type = DType::bf16},
        {.shard_rows = {300}, .tokens = 70, .levels = 3, .type = DType::bf16},
    };
    return cases;
}

/// `statistics`: shard by shard; `losses`: with the margins. Exact where logits are: uncapped.
inline void expect_top_two(const Problem& problem, const std::vector<int64_t>& shard_rows,
                           const Matrix& statistics, const std::vector<float>& losses) {
    // Of a capped logit: a few units in the last place of tanhf and of the product with the cap.
    const double rounding = problem.options.logit_softcap * 8 * 0x1p-23;
    const int64_t tokens = problem.tokens();
    int64_t first = 0;
    for (size_t k = 0; k < shard_rows.size(); ++k) {
        for (int64_t n = 0; n < tokens; ++n) {
            std::vector<double> z = sorted_logits(problem, n, first, shard_rows[k]);
            z.resize(std::max<size_t>(z.size(), 2), -std::numeric_limits<double>::infinity());
            for (int64_t i = 0; i < 2; ++i) {
                const double found =
                    statistics.get(static_cast<int64_t>(k) * tokens + n, kStatistics + i);
                const double expected = z[static_cast<size_t>(i)];
                if (std::isinf(expected) || rounding == 0) {
                    EXPECT_EQ(found, expected) << "shard " << k << ", token " << n;
                } else {
                    EXPECT_NEAR(found, expected, rounding) << "shard " << k << ", token " << n;
                }
            }
        }
        first += shard_rows[k];
    }
    ASSERT_EQ(std::ssize(losses), 2 * tokens);
    for (int64_t n = 0; n < tokens; ++n) {
        const double expected = exact_margin(problem, n);
        // The sum of exponentials is off by some units in the last place, which their arguments, up
        // to about 30, may multiply; both logits of the difference by `rounding`.
        const double bound = 64 * 0x1p-23 * expected + 4 * rounding;
        EXPECT_NEAR(losses[static_cast<size_t>(tokens + n)], expected, bound) << "token " << n;
        const std::vector<double> z = sorted_logits(problem, n, 0, problem.vocab());
        if (z.size() > 1 && z[0] == z[1] && rounding == 0) {
            EXPECT_EQ(losses[static_cast<size_t>(tokens + n)], 0) << "equal logits";
        }
        EXPECT_NEAR(losses[static_cast<size_t>(n)], softmax_row(problem, n).loss, 1e-4)
            << "token " << n;
    }
}

}  // namespace vocabpipe::kernels::test
