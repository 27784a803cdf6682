// SPDX-License-Identifier: Apache-2.0
// The output layer a second time, unpartitioned, in fp64 and written from the textbook formulas,
// problems for it, and the bounds within which the kernels must agree with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {

inline constexpr int32_t kIgnoredLabel = -100;

/// || a - b || / || b ||
[[nodiscard]] inline double relative_error(const Matrix& a, const Matrix& b) {
    double difference = 0;
    double norm = 0;
    for (int64_t i = 0; i < b.rows(); ++i) {
        for (int64_t j = 0; j < b.cols(); ++j) {
            difference += (a.get(i, j) - b.get(i, j)) * (a.get(i, j) - b.get(i, j));
            norm += b.get(i, j) * b.get(i, j);
        }
    }
    return std::sqrt(difference / norm);
}

/// One microbatch and the whole output matrix.
struct Problem {
    Matrix x, w;
    std::vector<int32_t> labels;
    std::vector<float> g;
    LossOptions options;

    [[nodiscard]] int64_t tokens() const { return x.rows(); }
    [[nodiscard]] int64_t hidden() const { return x.cols(); }
    [[nodiscard]] int64_t vocab() const { return w.rows(); }
};

/// Normal x and w whose logits have the standard deviation `logit_std`; every fifth label is
/// ignored and the weights g vary in size and sign.
[[nodiscard]] inline Problem random_problem(uint64_t seed, int64_t tokens, int64_t hidden,
                                            int64_t vocab, DType type, double logit_std,
                                            const LossOptions& options, int64_t gap = 0) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    Problem problem{
        Matrix(tokens, hidden, type, gap), Matrix(vocab, hidden, type, gap), {}, {}, options};
    const double scale = logit_std / std::sqrt(static_cast<double>(hidden));
    for (int64_t i = 0; i < hidden; ++i) {
        for (int64_t n = 0; n < tokens; ++n) problem.x.set(n, i, scale * normal(random));
        for (int64_t j = 0; j < vocab; ++j) problem.w.set(j, i, normal(random));
    }
    for (int64_t n = 0; n < tokens; ++n) {
        const auto label = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
        problem.labels.push_back(n % 5 == 4 ? kIgnoredLabel : label);
        problem.g.push_back(n % 5 == 4 ? 0.0F : static_cast<float>(0.1 + std::abs(normal(random))));
        if (n % 7 == 3) problem.g.back() *= -1;
    }
    return problem;
}

struct Result {
    std::vector<double> loss;
    Matrix dx, dw;
};

/// Softmax and the factors of its gradient, for one token.
struct Row {
    std::vector<double> p;
    std::vector<double> slope;  ///< d logit / d (x w): 1 without cap and temperature
    double log_z = 0;
    double loss = 0;
    double softmax_factor = 0;  ///< d loss / d log Z
};

[[nodiscard]] inline Row softmax_row(const Problem& problem, int64_t n) {
    Row row;
    std::vector<double> z(static_cast<size_t>(problem.vocab()));
    double mean = 0;
    for (int64_t j = 0; j < problem.vocab(); ++j) {
        for (int64_t i = 0; i < problem.hidden(); ++i) {
            z[static_cast<size_t>(j)] += problem.x.get(n, i) * problem.w.get(j, i);
        }
        row.slope.push_back(1);
        if (const double cap = problem.options.logit_softcap; cap > 0) {
            const double tanh = std::tanh(z[static_cast<size_t>(j)] / cap);
            z[static_cast<size_t>(j)] = cap * tanh;
            row.slope.back() = 1 - tanh * tanh;
        }
        z[static_cast<size_t>(j)] /= problem.options.temperature;
        row.slope.back() /= problem.options.temperature;
        mean += z[static_cast<size_t>(j)] / static_cast<double>(problem.vocab());
    }
    const double max = *std::max_element(z.begin(), z.end());
    double sum = 0;
    for (const double logit : z) sum += std::exp(logit - max);
    row.log_z = max + std::log(sum);
    for (const double logit : z) row.p.push_back(std::exp(logit - row.log_z));
    row.softmax_factor = 1 + 2.0 * problem.options.z_loss * row.log_z;
    const int32_t label = problem.labels[static_cast<size_t>(n)];
    const double eps = problem.options.label_smoothing;
    if (label >= 0) {
        row.loss = row.log_z - (1 - eps) * z[static_cast<size_t>(label)] - eps * mean +
                   problem.options.z_loss * row.log_z * row.log_z;
    }
    return row;
}

/// d(sum_n g_n loss_n) / d (x w) of one token.
[[nodiscard]] inline std::vector<double> logit_gradient(const Problem& problem, int64_t n,
                                                        const Row& row) {
    const auto at = static_cast<size_t>(n);
    const double g = problem.labels[at] < 0 ? 0.0 : problem.g[at];
    const double eps = problem.options.label_smoothing;
    std::vector<double> dz;
    for (int64_t j = 0; j < problem.vocab(); ++j) {
        dz.push_back(g * row.slope[static_cast<size_t>(j)] *
                     (row.softmax_factor * row.p[static_cast<size_t>(j)] -
                      (j == problem.labels[at] ? 1 - eps : 0.0) -
                      eps / static_cast<double>(problem.vocab())));
    }
    return dz;
}

/// `round` is applied to every dz before the products.
template <typename Round>
[[nodiscard]] Result oracle(const Problem& problem, Round&& round) {
    Result result{{},
                  Matrix(problem.tokens(), problem.hidden(), DType::fp64, 0),
                  Matrix(problem.vocab(), problem.hidden(), DType::fp64, 0)};
    std::vector<double> dw(static_cast<size_t>(problem.vocab() * problem.hidden()));
    for (int64_t n = 0; n < problem.tokens(); ++n) {
        const Row row = softmax_row(problem, n);
        result.loss.push_back(row.loss);
        std::vector<double> dz = logit_gradient(problem, n, row);
        for (double& value : dz) value = round(value);
        for (int64_t i = 0; i < problem.hidden(); ++i) {
            double dx = 0;
            for (int64_t j = 0; j < problem.vocab(); ++j) {
                dx += dz[static_cast<size_t>(j)] * problem.w.get(j, i);
                dw[static_cast<size_t>(j * problem.hidden() + i)] +=
                    dz[static_cast<size_t>(j)] * problem.x.get(n, i);
            }
            result.dx.set(n, i, dx);
        }
    }
    for (int64_t j = 0; j < problem.vocab(); ++j) {
        for (int64_t i = 0; i < problem.hidden(); ++i) {
            result.dw.set(j, i, dw[static_cast<size_t>(j * problem.hidden() + i)]);
        }
    }
    return result;
}
[[nodiscard]] inline Result oracle(const Problem& problem) {
    return oracle(problem, [](double value) { return value; });
}

[[nodiscard]] inline Matrix rows_of(const Matrix& whole, int64_t first, int64_t count,
                                    int64_t gap) {
    Matrix part(count, whole.cols(), whole.type(), gap);
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t j = 0; j < whole.cols(); ++j) part.set(i, j, whole.get(first + i, j));
    }
    return part;
}

struct ShardCase {
    const char* name;
    std::vector<int64_t> rows;
    LossOptions options;
    double logit_std = 1;

    [[nodiscard]] int64_t vocab() const {
        return std::accumulate(rows.begin(), rows.end(), int64_t{0});
    }
    friend std::string name_of(const ShardCase& c) { return c.name; }
    friend void PrintTo(const ShardCase& c, std::ostream* out) { *out << c.name; }
};

[[nodiscard]] inline std::vector<ShardCase> shard_cases() {
    const LossOptions smooth{.label_smoothing = 0.1F};
    const LossOptions both{.label_smoothing = 0.1F, .z_loss = 1e-3F};
    return {
        {"one_shard", {97}, {}},
        {"even", {32, 32, 32}, {}},
        {"not_divisible", {33, 32, 32}, {}},
        {"uneven", {1, 60, 5, 31}, {}},
        {"empty_first", {0, 50, 47}, {}},
        {"empty_middle_and_last", {50, 0, 47, 0}, {}},
        {"large_logits", {33, 32, 32}, {}, 30},
        {"smoothing", {33, 0, 64}, smooth},
        {"z_loss", {33, 0, 64}, {.z_loss = 1e-2F}},
        {"smoothing_and_z_loss_large_logits", {33, 0, 64}, both, 30},
        {"temperature_and_z_loss", {33, 0, 64}, {.z_loss = 1e-2F, .temperature = 0.4F}},
        {"cap", {33, 0, 64}, {.logit_softcap = 2}},
        {"cap_that_hardly_bends", {97}, {.logit_softcap = 50}},
        {"cap_and_z_loss_large_logits", {33, 0, 64}, {.z_loss = 1e-3F, .logit_softcap = 30}, 30},
        {"cap_and_temperature", {33, 0, 64}, {.logit_softcap = 2, .temperature = 3}},
    };
}

/// Elementwise bound of the error of fp32 results against exact arithmetic, u = 2^-24. A logit is
/// off by at most h u sum |x w| =: delta_n; an exponential and the normaliser each by a factor 1 +
/// delta_n, and a few u of their own; sums of v (N) terms by v u (N u) times the sum of their
/// magnitudes. A soft cap does not enlarge delta_n; its tanh is off by 8 u, and its slope by twice
/// both and a few u of its own.
struct Bound {
    Matrix dx, dw;
    std::vector<double> loss;
};

[[nodiscard]] inline Bound fp32_bound(const Problem& problem) {
    constexpr double kUnit = 0x1p-24;
    const int64_t vocab = problem.vocab();
    const int64_t hidden = problem.hidden();
    Bound bound{
        Matrix(problem.tokens(), hidden, DType::fp64), Matrix(vocab, hidden, DType::fp64), {}};
    std::vector<double> dw(static_cast<size_t>(vocab * hidden));
    for (int64_t n = 0; n < problem.tokens(); ++n) {
        const auto at = static_cast<size_t>(n);
        const Row row = softmax_row(problem, n);
        double delta = 0;
        double largest = 0;  // |z| and differences of two z are rounded to fp32, too
        for (int64_t j = 0; j < vocab; ++j) {
            double magnitude = 0;
            double z = 0;
            for (int64_t i = 0; i < hidden; ++i) {
                magnitude += std::abs(problem.x.get(n, i) * problem.w.get(j, i)) /
                             problem.options.temperature;
                z += problem.x.get(n, i) * problem.w.get(j, i) / problem.options.temperature;
            }
            delta = std::max(delta, static_cast<double>(hidden) * kUnit * magnitude);
            largest = std::max(largest, std::abs(z));
        }
        delta += 4 * kUnit * largest;
        double slope_error = 0;
        if (const double cap = problem.options.logit_softcap; cap > 0) {
            slope_error = 2 * delta * problem.options.temperature / cap + 24 * kUnit;
            delta += 12 * kUnit * std::min(largest, cap / problem.options.temperature);
        }
        bound.loss.push_back(problem.labels[at] < 0
                                 ? 0
                                 : (2 * delta + 8 * kUnit) * (1 + std::abs(row.softmax_factor)) +
                                       kUnit * std::abs(row.loss));
        const double eps = problem.options.label_smoothing;
        const double weight = problem.labels[at] < 0 ? 0.0 : std::abs(problem.g[at]);
        const auto terms = static_cast<double>(vocab + problem.tokens());
        for (int64_t i = 0; i < hidden; ++i) {
            double dx = 0;
            for (int64_t j = 0; j < vocab; ++j) {
                const double size =
                    weight *
                    (std::abs(row.softmax_factor) * row.p[static_cast<size_t>(j)] +
                     (j == problem.labels[at] ? 1.0 : 0.0) + eps / static_cast<double>(vocab));
                const double error = size / problem.options.temperature *
                                     (3 * delta + slope_error + (terms + 32) * kUnit);
                dx += error * std::abs(problem.w.get(j, i));
                dw[static_cast<size_t>(j * hidden + i)] += error * std::abs(problem.x.get(n, i));
            }
            bound.dx.set(n, i, dx);
        }
    }
    for (int64_t j = 0; j < vocab; ++j) {
        for (int64_t i = 0; i < hidden; ++i) {
            bound.dw.set(j, i, dw[static_cast<size_t>(j * hidden + i)]);
        }
    }
    return bound;
}

inline void expect_within(const Matrix& actual, const Matrix& expected, const Matrix& bound) {
    expect_close(actual, expected, [&](int64_t row, int64_t col) { return bound.get(row, col); });
}

/// Every label's logit leads the largest other one by `lead`.
[[nodiscard]] inline Problem problem_with_lead(double lead) {
    Problem problem = random_problem(12, 64, 128, 2048, DType::bf16, 1, {});
    std::vector<double> base(static_cast<size_t>(problem.hidden()));
    for (int64_t n = 0; n < problem.tokens(); ++n) {
        auto& label = problem.labels[static_cast<size_t>(n)];
        if (label < 0) label = static_cast<int32_t>(n * 31);
        problem.g[static_cast<size_t>(n)] = 1.0F / 64;
        double norm = 0;
        for (int64_t i = 0; i < problem.hidden(); ++i) {
            base[static_cast<size_t>(i)] = problem.x.get(n, i);
            norm += problem.w.get(label, i) * problem.w.get(label, i);
        }
        double along = 0;
        for (int round = 0; round < 4; ++round) {  // rounding x to bf16 moves the logits a little
            for (int64_t i = 0; i < problem.hidden(); ++i) {
                problem.x.set(n, i, base[static_cast<size_t>(i)] + along * problem.w.get(label, i));
            }
            double own = 0;
            double others = -1e300;
            for (int64_t j = 0; j < problem.vocab(); ++j) {
                double z = 0;
                for (int64_t i = 0; i < problem.hidden(); ++i)
                    z += problem.x.get(n, i) * problem.w.get(j, i);
                if (j == label) {
                    own = z;
                } else {
                    others = std::max(others, z);
                }
            }
            along += (lead - (own - others)) / norm;
        }
    }
    return problem;
}

/// Expects of an untouched loss and two shards of 1500 rows: the label's entry is exactly 0, its
/// logit is a statistic of its own, and the sums are of exponentials that were not rounded.
inline void expect_exact_statistics_of_halves(const Problem& problem,
                                              const std::vector<Matrix>& exp_logits,
                                              const Matrix& statistics) {
    for (int64_t n = 0; n < problem.tokens(); ++n) {
        const Row row = softmax_row(problem, n);
        double sum = 0;
        for (int64_t k = 0; k < 2; ++k) {
            const int64_t at = k * problem.tokens() + n;
            sum += statistics.get(at, 1) * std::exp(statistics.get(at, 0) - row.log_z);
            const int64_t label = problem.labels[static_cast<size_t>(n)] - k * 1500;
            if (label >= 0 && label < 1500) {
                EXPECT_EQ(exp_logits[static_cast<size_t>(k)].get(n, label), 0.0);
                const double p = row.p[static_cast<size_t>(label + k * 1500)];
                EXPECT_NEAR(statistics.get(at, 2) - row.log_z, std::log(p), 1e-5);
                sum += p;
            } else {
                EXPECT_EQ(statistics.get(at, 2), 0.0);
            }
            EXPECT_EQ(statistics.get(at, 3), 0.0) << "no smoothing, no sum of logits";
        }
        // Rounded exponentials would be off by 2^-9 / sqrt(3000), about 3e-5.
        EXPECT_NEAR(sum, 1, 3e-6);
    }
}

}  // namespace vocabpipe::kernels::test
