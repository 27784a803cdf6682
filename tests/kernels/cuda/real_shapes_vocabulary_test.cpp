// SPDX-License-Identifier: Apache-2.0
// S and T of a whole vocabulary at the sizes of training, sampled against fp64 on the host: loss
// and dX of a token in every 64, over the whole vocabulary, and rows of dW over all tokens.
//
// Bounds, in which z is a logit, p its probability and eps = 2^-24 (error_factors.hpp):
//   z     E = sqrt(h) eps |x| |w|, absolute: the product in fp32
//   log Z, loss   2 E + (sqrt(V) + 16) eps (1 + |loss|): exponentials and their sum
//   dX    over the terms p_j W_j: their rounding to bf16, what all p have in common (log Z), what
//         each has of its own (E), the sum over V; and a few eps of the result
//   dW    the same over the terms g_n p_n x_n, rounded twice: e, and c x
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/error_factors.hpp"
#include "tests/kernels/cuda/large_matrix.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct LayerShape {
    int64_t tokens, hidden, vocab;
    int64_t sampled_tokens, sampled_rows;
};

constexpr LayerShape kSmallLayer{64, 64, 520, 8, 16};
/// Llama 3: 64 tokens meet every tile of 64 or more, 256 rows a quarter of the tiles of 128.
constexpr LayerShape kRealLayer =
    kOnStandIn ? kSmallLayer : LayerShape{4096, 4096, 128256, 64, 256};

double dot(const double* a, const double* b, int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

double length(const std::vector<double>& vector) {
    return std::sqrt(dot(vector.data(), vector.data(), std::ssize(vector)));
}

/// Logits have the standard deviation 1: every part of the vocabulary counts.
struct LayerProblem {
    explicit LayerProblem(const LayerShape& of)
        : shape(of),
          x(LargeMatrix::random(of.tokens, of.hidden, DType::bf16, 1, -1, 1)),
          w(LargeMatrix::random(of.vocab, of.hidden, DType::bf16, 2, -w_range(of), w_range(of))) {
        for (int64_t n = 0; n < of.tokens; ++n) {
            // One token in 16 has the same frequent label, one in 16 is ignored.
            const auto place = static_cast<uint64_t>(n);
            const auto label =
                static_cast<int32_t>(random_bits(3, place) % static_cast<uint64_t>(of.vocab));
            labels.push_back(n % 16 == 3 ? 7 : n % 16 == 11 ? -100 : label);
            g.push_back(1 + random_value(4, place) / 2);
        }
    }
    static float w_range(const LayerShape& of) {
        return 3 / std::sqrt(static_cast<float>(of.hidden));
    }
    [[nodiscard]] std::string name(const char* output) const {
        return std::string("output layer, ") + output + ", N = " + std::to_string(shape.tokens) +
               ", h = " + std::to_string(shape.hidden) + ", V = " + std::to_string(shape.vocab) +
               ", bf16";
    }
    [[nodiscard]] VocabularyShard shard() const {
        return {.first_row = 0, .rows = shape.vocab, .vocab_size = shape.vocab};
    }
    /// 0 of a token without a label.
    [[nodiscard]] double weight(int64_t n) const {
        const auto at = static_cast<size_t>(n);
        return labels[at] < 0 ? 0.0 : g[at];
    }

    LayerShape shape;
    LargeMatrix x, w;
    std::vector<int32_t> labels;
    std::vector<float> g;
};

struct LayerOutputs {
    std::vector<float> loss;
    LargeMatrix statistics, dx, dw, dw_twice;
};

/// `missing_columns`: so many columns of exp_logits are zero, as if a tile had been left out.
LayerOutputs run_layer(const LayerProblem& p, int64_t missing_columns = 0) {
    const auto [tokens, hidden, vocab, sampled_tokens, sampled_rows] = p.shape;
    Device device;
    Context& ctx = device.context();
    const LargeOnDevice x(device, p.x), w(device, p.w);
    const DeviceArray<int32_t> labels(device, p.labels);
    const DeviceArray<float> g(device, p.g);
    const LargeOnDevice exp_logits(device, tokens, vocab, DType::bf16);
    const LargeOnDevice statistics(device, tokens, kStatistics, DType::fp32);
    const LargeOnDevice factors(device, tokens, 2, DType::fp32);
    const LargeOnDevice u(device, tokens, hidden, DType::fp32);
    const LargeOnDevice dw(device, vocab, hidden, DType::fp32);
    const DeviceArray<float> loss(device, std::vector<float>(p.labels.size(), NAN));
    const DeviceBytes space(static_cast<size_t>(
        std::max({cuda::vocabulary_score_workspace_bytes(tokens, vocab, DType::bf16),
                  cuda::vocabulary_input_gradient_workspace_bytes(hidden),
                  cuda::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, DType::bf16)})));
    const VocabularyShard shard = p.shard();

    cuda::vocabulary_score(ctx, x, w, labels, shard, {}, exp_logits, statistics, {}, space);
    EXPECT_EQ(exp_logits.download().count_not_finite(), 0) << p.name("exp_logits");
    for (int64_t n = 0; missing_columns > 0 && n < tokens; ++n) {
        cuda::check(
            cudaMemsetAsync(exp_logits.view().row_range(n, 1).data, 0,
                            static_cast<size_t>(missing_columns) * sizeof(Bf16), device.stream()),
            "cudaMemsetAsync");
    }
    cuda::vocabulary_input_product(ctx, exp_logits, w, u);
    cuda::combine_statistics(ctx, statistics, labels, g, shard, 0, {}, factors, loss);
    cuda::vocabulary_input_gradient(ctx, u, factors, w, labels, g, shard, {}, space);
    const auto weight_gradient = [&](bool accumulate) {
        cuda::vocabulary_weight_gradient(ctx, x, exp_logits, factors, labels, g, shard, {}, dw,
                                         accumulate, space);
        return dw.download();
    };
    LargeMatrix once = weight_gradient(false);
    LargeMatrix twice = weight_gradient(true);
    LayerOutputs outputs{loss.download(), statistics.download(), u.download(), std::move(once),
                         std::move(twice)};
    EXPECT_EQ(outputs.statistics.count_not_finite(), 0) << p.name("statistics");
    EXPECT_EQ(outputs.dx.count_not_finite(), 0) << p.name("dX");
    EXPECT_EQ(outputs.dw.count_not_finite(), 0) << p.name("dW");
    EXPECT_EQ(outputs.dw_twice.count_not_finite(), 0) << p.name("accumulated dW");
    for (const float value : outputs.loss) EXPECT_TRUE(std::isfinite(value)) << p.name("loss");
    return outputs;
}

/// log Z of every token, from the statistics.
std::vector<double> log_sums(const LayerProblem& p, const LargeMatrix& statistics) {
    std::vector<double> result;
    for (int64_t n = 0; n < p.shape.tokens; ++n) {
        const double m = statistics.get(n, 0), others = statistics.get(n, 1);
        const bool labelled = p.labels[static_cast<size_t>(n)] >= 0;
        const double label = labelled ? std::exp(statistics.get(n, 2) - m) : 0;
        result.push_back(m + std::log(others + label));
    }
    return result;
}

/// The sampled tokens in fp64, over the whole vocabulary.
class ExactTokens {
public:
    explicit ExactTokens(const LayerProblem& p)
        : tokens(sample_of_each_part(p.shape.tokens, p.shape.sampled_tokens, 5)),
          log_z(tokens.size()),
          label_logit(tokens.size()),
          logit_error(tokens.size()),
          p_(p),
          probabilities_(tokens.size() * static_cast<size_t>(p.shape.vocab)) {
        std::vector<std::vector<double>> xs;
        for (const int64_t n : tokens) xs.push_back(p.x.row(n));
        double longest = 0;
#pragma omp parallel for num_threads(host_threads()) reduction(max : longest)
        for (int64_t j = 0; j < p.shape.vocab; ++j) {
            const std::vector<double> row = p.w.row(j);
            longest = std::max(longest, length(row));
            for (size_t t = 0; t < xs.size(); ++t) {
                at(j, t) = dot(xs[t].data(), row.data(), p.shape.hidden);
            }
        }
        for (size_t t = 0; t < tokens.size(); ++t) {
            logit_error[t] = dot_error(p.shape.hidden) * length(xs[t]) * longest;
            if (label(t) >= 0) label_logit[t] = at(label(t), t);
        }
        normalize();
    }
    [[nodiscard]] int32_t label(size_t t) const {
        return p_.labels[static_cast<size_t>(tokens[t])];
    }
    /// The error of log Z, which all probabilities of a token have in common.
    [[nodiscard]] double log_z_error(size_t t) const {
        return logit_error[t] + (std::sqrt(static_cast<double>(p_.shape.vocab)) + 16) * kEps32;
    }

    /// sum_j p_j W_ji over all j but the label, and the same of the squares, of columns [first,
    /// first + count): (count, tokens).
    void input_products(int64_t first, int64_t count, std::vector<double>& sums,
                        std::vector<double>& squares) const {
        const size_t all = tokens.size();
        sums.assign(static_cast<size_t>(count) * all, 0);
        squares.assign(static_cast<size_t>(count) * all, 0);
        std::vector<double> row(static_cast<size_t>(count));
        for (int64_t j = 0; j < p_.shape.vocab; ++j) {
            p_.w.read(j, first, row);
            const double* const p = probabilities_.data() + static_cast<size_t>(j) * all;
            for (size_t i = 0; i < row.size(); ++i) {
                double* const sum = sums.data() + i * all;
                double* const square = squares.data() + i * all;
                const double w = row[i];
#pragma omp simd
                for (size_t t = 0; t < all; ++t) {
                    const double term = p[t] * w;
                    sum[t] += term;
                    square[t] += term * term;
                }
            }
        }
    }

    std::vector<int64_t> tokens;
    std::vector<double> log_z;
    std::vector<double> label_logit;  ///< 0 without a label
    std::vector<double> logit_error;  ///< E

private:
    double& at(int64_t j, size_t t) {
        return probabilities_[static_cast<size_t>(j) * tokens.size() + t];
    }
    /// Logits, which are small, become probabilities, those of labels 0.
    void normalize() {
#pragma omp parallel for num_threads(host_threads())
        for (size_t t = 0; t < tokens.size(); ++t) {
            double sum = 0;
            for (int64_t j = 0; j < p_.shape.vocab; ++j) sum += at(j, t) = std::exp(at(j, t));
            log_z[t] = std::log(sum);
            for (int64_t j = 0; j < p_.shape.vocab; ++j) at(j, t) *= label(t) == j ? 0 : 1 / sum;
        }
    }

    const LayerProblem& p_;
    std::vector<double> probabilities_;  // (V, tokens); first logits
};

void expect_losses(const LayerProblem& p, const ExactTokens& exact, const LayerOutputs& outputs) {
    const std::vector<double> from_statistics = log_sums(p, outputs.statistics);
    ErrorFactors losses(p.name("loss")), sums(p.name("log Z of the statistics"));
    for (size_t t = 0; t < exact.tokens.size(); ++t) {
        const int64_t n = exact.tokens[t];
        const int32_t label = exact.label(t);
        const double loss = label < 0 ? 0 : exact.log_z[t] - exact.label_logit[t];
        losses.add(n, 0, outputs.loss[static_cast<size_t>(n)], loss,
                   label < 0
                       ? 0
                       : exact.log_z_error(t) + exact.logit_error[t] + 4 * kEps32 * std::abs(loss));
        // No entry is kept apart where a token has no label.
        sums.add(n, 0, from_statistics[static_cast<size_t>(n)], exact.log_z[t],
                 exact.log_z_error(t) + 4 * kEps32 * std::abs(exact.log_z[t]));
    }
    losses.expect_within_bounds();
    sums.expect_within_bounds();
}

void expect_input_gradient(const LayerProblem& p, const ExactTokens& exact,
                           const LayerOutputs& outputs) {
    constexpr int64_t kColumns = 32;  // at a time: sums stay in the cache
    const auto terms = static_cast<int64_t>(p.shape.vocab);
    ErrorFactors errors(p.name("dX"));
#pragma omp parallel for num_threads(host_threads()) schedule(dynamic)
    for (int64_t first = 0; first < p.shape.hidden; first += kColumns) {
        const int64_t count = std::min(kColumns, p.shape.hidden - first);
        std::vector<double> sums, squares;
        exact.input_products(first, count, sums, squares);
        ErrorFactors here("");
        for (int64_t i = 0; i < count; ++i) {
            for (size_t t = 0; t < exact.tokens.size(); ++t) {
                const int64_t n = exact.tokens[t], col = first + i;
                const double g = p.weight(n);
                const size_t at = static_cast<size_t>(i) * exact.tokens.size() + t;
                const int32_t label = exact.label(t);
                const double share =
                    label < 0 ? 0 : std::exp(exact.label_logit[t] - exact.log_z[t]);
                const double w = label < 0 ? 0 : p.w.get(label, col);
                const double size = std::sqrt(squares[at]);
                const double bound =
                    g * ((kRoundedTerms + accumulation(terms) + 6 * exact.logit_error[t]) * size +
                         (exact.log_z_error(t) + 8 * kEps32) * std::abs(sums[at]) +
                         (2 * share * exact.log_z_error(t) + 8 * kEps32) * std::abs(w));
                here.add(n, col, outputs.dx.get(n, col), g * (sums[at] + (share - 1) * w), bound);
            }
        }
#pragma omp critical(layer_errors)
        errors.add(here);
    }
    errors.expect_within_bounds();
}

/// Some rows from everywhere, and those of the sampled tokens' labels.
std::vector<int64_t> sampled_rows(const LayerProblem& p, const ExactTokens& exact) {
    std::vector<int64_t> rows = sample_of_each_part(p.shape.vocab, p.shape.sampled_rows, 6);
    for (size_t t = 0; t < exact.tokens.size(); ++t) {
        if (exact.label(t) >= 0) rows.push_back(exact.label(t));
    }
    rows.push_back(7);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
}

void expect_weight_gradient(const LayerProblem& p, const ExactTokens& exact,
                            const LayerOutputs& outputs) {
    const int64_t tokens = p.shape.tokens, hidden = p.shape.hidden, vocab = p.shape.vocab;
    const std::vector<int64_t> rows = sampled_rows(p, exact);
    const std::vector<double> log_z = log_sums(p, outputs.statistics);
    const double logit_error = *std::ranges::max_element(exact.logit_error);
    const double common = 2 * logit_error + (std::sqrt(static_cast<double>(vocab)) + 16) * kEps32;
    LargeMatrix probabilities(std::ssize(rows), tokens, DType::fp32);  // 2^-24 of each does no harm
    std::vector<std::vector<double>> ws;
    for (const int64_t j : rows) ws.push_back(p.w.row(j));
#pragma omp parallel for num_threads(host_threads())
    for (int64_t n = 0; n < tokens; ++n) {
        const std::vector<double> x = p.x.row(n);
        for (size_t k = 0; k < rows.size(); ++k) {
            const double logit = dot(x.data(), ws[k].data(), hidden);
            probabilities.set(static_cast<int64_t>(k), n,
                              std::exp(logit - log_z[static_cast<size_t>(n)]));
        }
    }
    ErrorFactors once(p.name("dW")), twice(p.name("accumulated dW"));
#pragma omp parallel for num_threads(host_threads()) schedule(dynamic)
    for (int64_t k = 0; k < std::ssize(rows); ++k) {
        const int64_t j = rows[static_cast<size_t>(k)];
        const auto width = static_cast<size_t>(hidden);
        std::vector<double> x(width), sums(width), squares(width), label_sums(width),
            label_sizes(width), label_errors(width);
        int64_t labels = 0;
        for (int64_t n = 0; n < tokens; ++n) {
            const double factor = p.weight(n) * probabilities.get(k, n);
            const bool label = p.labels[static_cast<size_t>(n)] == j;
            labels += label ? 1 : 0;
            p.x.read(n, 0, x);
            if (label) {
                for (size_t i = 0; i < width; ++i) {
                    label_sums[i] += (factor - p.weight(n)) * x[i];
                    label_sizes[i] += p.weight(n) * std::abs(x[i]);
                    label_errors[i] += 2 * common * factor * std::abs(x[i]);
                }
                continue;
            }
#pragma omp simd
            for (size_t i = 0; i < width; ++i) {
                const double term = factor * x[i];
                sums[i] += term;
                squares[i] += term * term;
            }
        }
        ErrorFactors once_here(""), twice_here("");
        for (size_t i = 0; i < width; ++i) {
            const auto col = static_cast<int64_t>(i);
            const double first = outputs.dw.get(j, col), expected = sums[i] + label_sums[i];
            const double bound = (1.4143 * kRoundedTerms + accumulation(tokens) + 6 * logit_error) *
                                     std::sqrt(squares[i]) +
                                 (common + 8 * kEps32) * std::abs(sums[i]) +
                                 static_cast<double>(labels + 8) * kEps32 * label_sizes[i] +
                                 label_errors[i];
            once_here.add(j, col, first, expected, bound);
            twice_here.add(j, col, outputs.dw_twice.get(j, col), first + expected,
                           bound + static_cast<double>(labels + 8) * kEps32 * std::abs(first));
        }
#pragma omp critical(layer_errors)
        {
            once.add(once_here);
            twice.add(twice_here);
        }
    }
    once.expect_within_bounds();
    twice.expect_within_bounds();
}

void expect_layer(const LayerProblem& p, const LayerOutputs& outputs) {
    const ExactTokens exact(p);
    expect_losses(p, exact, outputs);
    expect_input_gradient(p, exact, outputs);
    expect_weight_gradient(p, exact, outputs);
}

class RealShapesVocabulary : public OnDevice {};

TEST_F(RealShapesVocabulary, LossAndGradientsAreThoseOfSampledRowsInFp64) {
    const LayerProblem problem(kRealLayer);
    expect_layer(problem, run_layer(problem));
}

TEST_F(RealShapesVocabulary, AMissingTileAndAWrongElementAreFound) {
    const LayerProblem problem(kSmallLayer);
    LayerOutputs outputs = run_layer(problem);
    EXPECT_EQ(failures_of([&] { expect_layer(problem, outputs); }), "");
    const LayerOutputs incomplete = run_layer(problem, 8);
    EXPECT_THAT(failures_of([&] { expect_layer(problem, incomplete); }),
                testing::AllOf(testing::HasSubstr("dX, N = 64, h = 64, V = 520"),
                               testing::HasSubstr("missed its bound")));
    outputs.dw.set(7, 3, outputs.dw.get(7, 3) + 0.01);  // of 2 and more
    EXPECT_THAT(failures_of([&] { expect_layer(problem, outputs); }),
                testing::HasSubstr("most of all row 7, column 3"));
}

}  // namespace
}  // namespace vocabpipe::kernels::test
