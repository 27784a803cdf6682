// SPDX-License-Identifier: Apache-2.0
// Attention by the textbook, with the errors that an operator may make, for the tests of all
// devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "tests/kernels/fused_qkv.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/attention_shape.hpp"

namespace vocabpipe::kernels::test {

inline double score_scale(AttentionShape shape) {
    return shape.scale > 0 ? static_cast<double>(shape.scale)
                           : 1 / std::sqrt(static_cast<double>(shape.head_size));
}

/// first_visible of the queries of sequences in which a document begins at each of these of all N
/// tokens, besides at the sequences' own beginnings.
inline std::vector<int32_t> documents(const AttentionShape& shape,
                                      std::initializer_list<int64_t> beginnings) {
    std::vector<int32_t> first_visible;
    int64_t beginning = 0;
    for (int64_t n = 0; n < shape.tokens(); ++n) {
        if (n % shape.seq_length == 0 || std::ranges::find(beginnings, n) != beginnings.end()) {
            beginning = n % shape.seq_length;
        }
        if (n % shape.seq_length >= shape.first_query()) {
            first_visible.push_back(static_cast<int32_t>(beginning));
        }
    }
    return first_visible;
}

/// Attention by the textbook with whole matrices of scores in fp64, and beside every result a bound
/// of the error that an operator may make: fp32 sums, p and ds rounded to the run's type.
struct Naive {
    Matrix out, out_bound, log_sum_exp, dq, dq_bound, dkv, dkv_bound;

    Naive(ConstTensor q, ConstTensor kv, const Matrix& dout, AttentionShape shape, DType type,
          std::span<const int32_t> first_visible = {})
        : out(zeros(shape.query_tokens(), shape.output_columns())),
          out_bound(out),
          log_sum_exp(zeros(shape.query_tokens(), shape.heads)),
          dq(zeros(shape.query_tokens(), shape.query_columns())),
          dq_bound(dq),
          dkv(zeros(shape.tokens(), shape.key_value_columns())),
          dkv_bound(dkv) {
        for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
            for (int64_t head = 0; head < shape.heads; ++head) {
                one_head(q, kv, dout, shape, first_visible, sequence, head, type);
            }
        }
        // The results are rounded once more.
        const double rounding = unit_roundoff(type) * 1.01;
        const auto round = [rounding](const Matrix& exact, Matrix& bound) {
            for (int64_t row = 0; row < exact.rows(); ++row) {
                for (int64_t col = 0; col < exact.cols(); ++col) {
                    add(bound, row, col,
                        1e-12 + rounding * (std::abs(exact.get(row, col)) + bound.get(row, col)));
                }
            }
        };
        round(out, out_bound);
        round(dq, dq_bound);
        round(dkv, dkv_bound);
    }
    Naive(const Matrix& qkv, const Matrix& dout, AttentionShape shape, DType type,
          std::span<const int32_t> first_visible = {})
        : Naive(queries_of(qkv, shape), keys_values_of(qkv, shape), dout, shape, type,
                first_visible) {}

private:
    static Matrix zeros(int64_t rows, int64_t cols) {
        return Matrix(rows, cols, DType::fp64).mapped(DType::fp64, [](double) { return 0.0; });
    }
    static void add(Matrix& matrix, int64_t row, int64_t col, double value) {
        matrix.set(row, col, matrix.get(row, col) + value);
    }

    void one_head(ConstTensor q_, ConstTensor kv, const Matrix& dout, AttentionShape shape,
                  std::span<const int32_t> first_visible, int64_t sequence, int64_t head,
                  DType type) {
        const int64_t s = shape.seq_length, d = shape.head_size, values = shape.value_size();
        const int64_t sharing = shape.heads / shape.kv_heads;  // query heads of a key
        const int64_t base = sequence * s, base_q = sequence * shape.query_count();
        const int64_t col = head * d, out_col = head * values;
        const int64_t k_col = head / sharing * d;
        const int64_t v_col = shape.key_columns() + head / sharing * values;
        const double scale = score_scale(shape);
        const auto cap = static_cast<double>(shape.softcap);
        const double narrow = type == DType::bf16 ? kEps16 * 1.01 : 0.0;
        const double rounding = unit_roundoff(type) * 1.01;
        const auto q = [&](int64_t t, int64_t i) {
            return reference::get(q_, base_q + t, col + i);
        };
        const auto k = [&](int64_t t, int64_t i) {
            return reference::get(kv, base + t, k_col + i);
        };
        const auto v = [&](int64_t t, int64_t i) {
            return reference::get(kv, base + t, v_col + i);
        };
        const auto g = [&](int64_t t, int64_t i) { return dout.get(base_q + t, out_col + i); };
        const auto terms_d = static_cast<double>(d + 2);
        const auto terms_values = static_cast<double>(values + 2);
        const auto terms_s = static_cast<double>(sharing * std::max(s, shape.query_count()) + 2);
        for (int64_t i = 0; i < shape.query_count(); ++i) {
            std::vector<double> score(static_cast<size_t>(s)), p(score), p_error(score), dp(score);
            std::vector<double> dp_error(score), slope(score), slope_error(score);
            double sum = 0.0, largest_error = 0.0;
            const int64_t end = shape.causal ? shape.first_query() + i + 1 : s;
            int64_t first = shape.window > 0 ? std::max<int64_t>(end - shape.window, 0) : 0;
            if (!first_visible.empty()) {
                first = std::max<int64_t>(first, first_visible[static_cast<size_t>(base_q + i)]);
            }
            for (int64_t j = first; j < end; ++j) {
                const auto at = static_cast<size_t>(j);
                double magnitude = 0.0, dp_magnitude = 0.0;
                for (int64_t c = 0; c < d; ++c) {
                    score[at] += q(i, c) * k(j, c) * scale;
                    magnitude += std::abs(q(i, c) * k(j, c)) * scale;
                }
                for (int64_t c = 0; c < values; ++c) {
                    dp[at] += g(i, c) * v(j, c);
                    dp_magnitude += std::abs(g(i, c) * v(j, c));
                }
                // the exponent's absolute error: the product's, and four roundings of it
                double error = (terms_d + 8) * kEps32 * magnitude;
                slope[at] = 1;
                if (cap > 0) {
                    // tanh does not enlarge the error, and makes 4 ulp of its own; 1 - tanh^2
                    // feels tanh's error twice
                    const double tanh = std::tanh(score[at] / cap);
                    score[at] = cap * tanh;
                    slope[at] = 1 - tanh * tanh;
                    slope_error[at] =
                        2 * std::abs(tanh) * (slope[at] * error / cap + 12 * kEps32) + 4 * kEps32;
                    error += 12 * kEps32 * std::abs(score[at]);
                }
                sum += std::exp(score[at]);
                largest_error = std::max(largest_error, error);
                dp_error[at] = terms_values * kEps32 * dp_magnitude;
            }
            const double lse = std::log(sum);
            log_sum_exp.set(base_q + i, head, lse);
            // p = exp(score - lse): both exponents' errors and exp's own 2 ulp
            const double relative = 4 * largest_error + (4 * std::abs(lse) + terms_s + 16) * kEps32;
            double delta = 0.0, delta_magnitude = 0.0;
            for (int64_t j = first; j < end; ++j) {
                const auto at = static_cast<size_t>(j);
                p[at] = std::exp(score[at] - lse);
                p_error[at] = p[at] * (relative + narrow);
                for (int64_t c = 0; c < values; ++c) {
                    add(out, base_q + i, out_col + c, p[at] * v(j, c));
                    add(out_bound, base_q + i, out_col + c,
                        (p_error[at] + p[at] * terms_s * kEps32) * std::abs(v(j, c)));
                }
            }
            for (int64_t c = 0; c < values; ++c) {
                delta += g(i, c) * out.get(base_q + i, out_col + c);
                delta_magnitude += std::abs(g(i, c) * out.get(base_q + i, out_col + c));
            }
            for (int64_t j = first; j < end; ++j) {
                const auto at = static_cast<size_t>(j);
                const double ds = p[at] * (dp[at] - delta) * slope[at] * scale;
                // delta is computed from `out` of the run's type
                const double difference_error =
                    dp_error[at] + (terms_values * kEps32 + 2 * rounding) * delta_magnitude;
                const double ds_error =
                    std::abs(ds) * (relative + narrow + 4 * kEps32 + terms_s * kEps32) +
                    p[at] * slope[at] * scale * difference_error +
                    p[at] * std::abs(dp[at] - delta) * slope_error[at] * scale;
                for (int64_t c = 0; c < d; ++c) {
                    add(dq, base_q + i, col + c, ds * k(j, c));
                    add(dkv, base + j, k_col + c, ds * q(i, c));
                    add(dq_bound, base_q + i, col + c, ds_error * std::abs(k(j, c)));
                    add(dkv_bound, base + j, k_col + c, ds_error * std::abs(q(i, c)));
                }
                for (int64_t c = 0; c < values; ++c) {
                    add(dkv, base + j, v_col + c, p[at] * g(i, c));
                    add(dkv_bound, base + j, v_col + c,
                        (p_error[at] + p[at] * terms_s * kEps32) * std::abs(g(i, c)));
                }
            }
        }
    }
};

/// The bound of log_sum_exp: scores of magnitude at most 4 d scale (q and k within +-2), in sums of
/// d and s terms.
inline std::function<double(int64_t, int64_t)> log_sum_exp_bound(const Naive& naive,
                                                                 AttentionShape shape) {
    return [&naive, shape](int64_t row, int64_t col) {
        const auto d = static_cast<double>(shape.head_size);
        return ((d + 20) * 4 * d * score_scale(shape) + static_cast<double>(shape.seq_length) +
                4 * std::abs(naive.log_sum_exp.get(row, col))) *
               kEps32;
    };
}

inline auto within(const Matrix& bound) {
    return [&bound](int64_t row, int64_t col) { return bound.get(row, col); };
}

/// dqkv: gradients of q | k | v. Without `bound`: the textbook's bounds.
inline void expect_gradients(const Matrix& dqkv, const Naive& naive,
                             const std::function<double(int64_t, int64_t)>& bound = {}) {
    const auto joined = [](const Matrix& q, const Matrix& kv) {
        Matrix both(q.rows(), q.cols() + kv.cols(), DType::fp64);
        for (int64_t row = 0; row < both.rows(); ++row) {
            for (int64_t col = 0; col < both.cols(); ++col) {
                both.set(row, col, col < q.cols() ? q.get(row, col) : kv.get(row, col - q.cols()));
            }
        }
        return both;
    };
    const Matrix bounds = joined(naive.dq_bound, naive.dkv_bound);
    expect_close(dqkv, joined(naive.dq, naive.dkv), bound ? bound : within(bounds));
}

}  // namespace vocabpipe::kernels::test
