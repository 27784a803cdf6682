// SPDX-License-Identifier: Apache-2.0
// The output layer a second time, unpartitioned, in fp64 and written from the textbook formulas,
// and what is needed to compare the kernels with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/reference/vocabulary.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {

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

/// d(sum_n g_n loss_n) / d z of one token.
[[nodiscard]] inline std::vector<double> logit_gradient(const Problem& problem, int64_t n,
                                                        const Row& row) {
    const auto at = static_cast<size_t>(n);
    const double g = problem.labels[at] < 0 ? 0.0 : problem.g[at];
    const double eps = problem.options.label_smoothing;
    std::vector<double> dz;
    for (int64_t j = 0; j < problem.vocab(); ++j) {
        dz.push_back(g * (row.softmax_factor * row.p[static_cast<size_t>(j)] -
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

}  // namespace vocabpipe::kernels::test
