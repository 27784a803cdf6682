// SPDX-License-Identifier: Apache-2.0
// What the tests of the router on every device share: options, and what rounding may change.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {

struct RouterCase {
    std::string name;
    int64_t tokens, experts;
    RouterOptions options;
    bool with_bias = false;

    friend std::string name_of(const RouterCase& c) { return c.name; }
    friend void PrintTo(const RouterCase& c, std::ostream* out) { *out << c.name; }
};

inline std::vector<RouterCase> router_cases() {
    constexpr auto kSigmoid = RouterScore::sigmoid;
    return {
        {"mixtral", 70, 8, {.top_k = 2, .normalize = true}},
        {"olmoe", 33, 64, {.top_k = 8}},
        {"qwen3_moe", 300, 128, {.top_k = 8, .normalize = true}},
        {"dots1",
         50,
         32,
         {.top_k = 6, .score = kSigmoid, .normalize = true, .scaling = 2.5F},
         true},
        {"deepseek_v3",
         150,
         64,
         {.top_k = 8,
          .score = kSigmoid,
          .normalize = true,
          .scaling = 2.5F,
          .groups = 8,
          .top_groups = 4},
         true},
        {"softmax_in_groups", 20, 12, {.top_k = 3, .scaling = 0.5F, .groups = 4, .top_groups = 2}},
        {"groups_of_one", 20, 6, {.top_k = 2, .score = kSigmoid, .groups = 6, .top_groups = 3}},
        {"all_experts", 5, 7, {.top_k = 7, .score = kSigmoid}},
        {"one_expert", 4, 1, {.top_k = 1, .normalize = true}},
        {"one_token", 1, 40, {.top_k = 4}},
        {"no_token", 0, 8, {.top_k = 2}},
    };
}

/// What a router gives, in one type.
struct Routed {
    Routed(int64_t tokens, int64_t experts, int64_t k, DType type)
        : choice(static_cast<size_t>(tokens * k), -1),
          weights(tokens, k, type),
          load(1, experts, type),
          score_sums(1, experts, type),
          log_z(tokens, 1, type) {}

    std::vector<int32_t> choice;
    Matrix weights, load, score_sums, log_z;
};

struct RouterProblem {
    explicit RouterProblem(const RouterCase& c, unsigned seed = 1)
        : options(c.options),
          logits(Matrix::random(c.tokens, c.experts, DType::fp32, seed, -6.0, 6.0)),
          bias(Matrix::random(1, c.experts, DType::fp32, seed + 1, -0.3, 0.3)),
          dweights(Matrix::random(c.tokens, c.options.top_k, DType::fp32, seed + 2)),
          with_bias(c.with_bias) {}

    [[nodiscard]] ConstTensor some_bias() const { return with_bias ? bias.view() : ConstTensor{}; }
    [[nodiscard]] Routed exact(Context& ctx) const {
        Routed result(logits.rows(), logits.cols(), options.top_k, DType::fp64);
        reference::router_forward(ctx, logits, some_bias(), options, result.choice, result.weights,
                                  result.load, result.score_sums, result.log_z);
        return result;
    }

    RouterOptions options;
    Matrix logits, bias, dweights;
    bool with_bias;
    RouterLossScales scales{.balance = 0.02F, .z = 0.03F};
};

/// Logits and log Z below 12 in magnitude, whose difference is rounded once; exp() within 4 ulp.
inline constexpr double kScoreError = (2 * 12 + 8) * kEps32;

inline void expect_routed(const Routed& actual, const Routed& exact) {
    EXPECT_EQ(actual.choice, exact.choice);
    const auto relative = [](const Matrix& values, double error) {
        return [&values, error](int64_t row, int64_t col) {
            return error * std::abs(values.get(row, col));
        };
    };
    expect_close(actual.weights, exact.weights, relative(exact.weights, 3 * kScoreError));
    expect_close(actual.load, exact.load, relative(exact.load, 0));
    expect_close(actual.score_sums, exact.score_sums, relative(exact.score_sums, 3 * kScoreError));
    expect_close(actual.log_z, exact.log_z, [](int64_t, int64_t) { return kScoreError; });
}

/// The sum of the magnitudes of what a logit's gradient is added up from.
inline Matrix gradient_magnitude(const RouterProblem& p, const Routed& exact) {
    const int64_t experts = p.logits.cols(), k = p.options.top_k;
    Matrix result(p.logits.rows(), experts, DType::fp64);
    const bool softmax = p.options.score == RouterScore::softmax;
    for (int64_t n = 0; n < p.logits.rows(); ++n) {
        std::vector<double> s, ds;
        double total = 0;
        for (int64_t e = 0; e < experts; ++e) {
            const double z = p.logits.get(n, e);
            s.push_back(softmax ? std::exp(z - exact.log_z.get(n, 0)) : 1 / (1 + std::exp(-z)));
            total += s.back();
        }
        double balance = 0;
        for (int64_t e = 0; e < experts; ++e) {
            balance += exact.load.get(0, e) * s[static_cast<size_t>(e)] / total;
        }
        for (int64_t e = 0; e < experts; ++e) {
            ds.push_back(static_cast<double>(p.scales.balance) * (exact.load.get(0, e) + balance) /
                         total);
        }
        double sum = 0, inner = 0;
        for (int64_t j = 0; j < k; ++j) {
            const double score =
                s[static_cast<size_t>(exact.choice[static_cast<size_t>(n * k + j)])];
            sum += score;
            inner += score * std::abs(p.dweights.get(n, j));
        }
        for (int64_t j = 0; j < k; ++j) {
            const double own = std::abs(p.dweights.get(n, j));
            ds[static_cast<size_t>(exact.choice[static_cast<size_t>(n * k + j)])] +=
                static_cast<double>(p.options.scaling) *
                (p.options.normalize ? (own + inner / sum) / sum : own);
        }
        double mean = 0;
        for (size_t e = 0; e < s.size(); ++e) mean += s[e] * ds[e];
        for (int64_t e = 0; e < experts; ++e) {
            const auto at = static_cast<size_t>(e);
            const double of_z = 2 * static_cast<double>(p.scales.z) *
                                std::abs(exact.log_z.get(n, 0)) *
                                std::exp(p.logits.get(n, e) - exact.log_z.get(n, 0));
            result.set(n, e, s[at] * (ds[at] + mean) + of_z + 1e-30);
        }
    }
    return result;
}

inline void expect_gradient(const Matrix& actual, const RouterProblem& p, const Routed& exact,
                            Context& ctx) {
    Matrix expected(p.logits.rows(), p.logits.cols(), DType::fp64);
    reference::router_backward(ctx, p.logits, exact.log_z, exact.choice, p.dweights, exact.load,
                               p.options, p.scales, expected);
    const Matrix magnitude = gradient_magnitude(p, exact);
    expect_close(actual, expected, [&](int64_t row, int64_t col) {
        return 4 * kScoreError * magnitude.get(row, col);
    });
}

}  // namespace vocabpipe::kernels::test
