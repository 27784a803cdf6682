// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/attention.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

const AttentionShape kShapes[] = {
    {.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1},
    {.sequences = 2, .seq_length = 3, .heads = 1, .head_size = 17},
    {.sequences = 1, .seq_length = 17, .heads = 3, .head_size = 8},
    {.sequences = 3, .seq_length = 64, .heads = 2, .head_size = 16},
    {.sequences = 2, .seq_length = 65, .heads = 2, .head_size = 64},
    {.sequences = 1, .seq_length = 129, .heads = 2, .head_size = 32},
    {.sequences = 1, .seq_length = 200, .heads = 1, .head_size = 5},
};

/// 64-byte aligned.
class Workspace {
public:
    explicit Workspace(int64_t bytes) : storage_(static_cast<size_t>(bytes) / 64 + 1) {}
    [[nodiscard]] std::span<std::byte> span() {
        return std::as_writable_bytes(std::span(storage_));
    }

private:
    struct alignas(64) Line {
        float poison[16] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN,
                            NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    };
    std::vector<Line> storage_;
};

/// Attention by the textbook with whole (s, s) matrices in fp64, and beside every result a bound of
/// the error that the host operator may make: fp32 sums, p and ds rounded to the run's type.
struct Naive {
    Matrix out, out_bound, log_sum_exp, dqkv, dqkv_bound;

    Naive(const Matrix& qkv, const Matrix& dout, AttentionShape shape, DType type)
        : out(zeros(shape.tokens(), shape.hidden())),
          out_bound(out),
          log_sum_exp(zeros(shape.tokens(), shape.heads)),
          dqkv(zeros(shape.tokens(), 3 * shape.hidden())),
          dqkv_bound(dqkv) {
        for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
            for (int64_t head = 0; head < shape.heads; ++head) {
                one_head(qkv, dout, shape, sequence, head, type);
            }
        }
    }

private:
    static Matrix zeros(int64_t rows, int64_t cols) {
        return Matrix(rows, cols, DType::fp64).mapped(DType::fp64, [](double) { return 0.0; });
    }
    static void add(Matrix& matrix, int64_t row, int64_t col, double value) {
        matrix.set(row, col, matrix.get(row, col) + value);
    }

    void one_head(const Matrix& qkv, const Matrix& dout, AttentionShape shape, int64_t sequence,
                  int64_t head, DType type) {
        const int64_t s = shape.seq_length, d = shape.head_size, h = shape.hidden();
        const int64_t base = sequence * s, col = head * d;
        const double scale = 1 / std::sqrt(static_cast<double>(d));
        const double narrow = type == DType::bf16 ? kEps16 * 1.01 : 0.0;
        const double rounding = unit_roundoff(type) * 1.01;
        const auto q = [&](int64_t t, int64_t i) { return qkv.get(base + t, col + i); };
        const auto k = [&](int64_t t, int64_t i) { return qkv.get(base + t, h + col + i); };
        const auto v = [&](int64_t t, int64_t i) { return qkv.get(base + t, 2 * h + col + i); };
        const auto g = [&](int64_t t, int64_t i) { return dout.get(base + t, col + i); };
        const auto terms_d = static_cast<double>(d + 2), terms_s = static_cast<double>(s + 2);
        for (int64_t i = 0; i < s; ++i) {
            std::vector<double> score(static_cast<size_t>(s)), p(score), p_error(score), dp(score);
            std::vector<double> dp_error(score);
            double sum = 0.0, largest_error = 0.0;
            for (int64_t j = 0; j <= i; ++j) {
                const auto at = static_cast<size_t>(j);
                double magnitude = 0.0, dp_magnitude = 0.0;
                for (int64_t c = 0; c < d; ++c) {
                    score[at] += q(i, c) * k(j, c) * scale;
                    magnitude += std::abs(q(i, c) * k(j, c)) * scale;
                    dp[at] += g(i, c) * v(j, c);
                    dp_magnitude += std::abs(g(i, c) * v(j, c));
                }
                sum += std::exp(score[at]);
                // the exponent's absolute error: the product's, and four roundings of it
                largest_error = std::max(largest_error, (terms_d + 8) * kEps32 * magnitude);
                dp_error[at] = terms_d * kEps32 * dp_magnitude;
            }
            const double lse = std::log(sum);
            log_sum_exp.set(base + i, head, lse);
            // p = exp(score - lse): both exponents' errors and exp's own 2 ulp
            const double relative = 4 * largest_error + (4 * std::abs(lse) + terms_s + 16) * kEps32;
            double delta = 0.0, delta_magnitude = 0.0;
            for (int64_t j = 0; j <= i; ++j) {
                const auto at = static_cast<size_t>(j);
                p[at] = std::exp(score[at] - lse);
                p_error[at] = p[at] * (relative + narrow);
                for (int64_t c = 0; c < d; ++c) {
                    add(out, base + i, col + c, p[at] * v(j, c));
                    add(out_bound, base + i, col + c,
                        (p_error[at] + p[at] * terms_s * kEps32) * std::abs(v(j, c)));
                }
            }
            for (int64_t c = 0; c < d; ++c) {
                delta += g(i, c) * out.get(base + i, col + c);
                delta_magnitude += std::abs(g(i, c) * out.get(base + i, col + c));
            }
            for (int64_t j = 0; j <= i; ++j) {
                const auto at = static_cast<size_t>(j);
                const double ds = p[at] * (dp[at] - delta) * scale;
                // delta is computed from `out` of the run's type
                const double difference_error =
                    dp_error[at] + (terms_d * kEps32 + 2 * rounding) * delta_magnitude;
                const double ds_error =
                    std::abs(ds) * (relative + narrow + 4 * kEps32 + terms_s * kEps32) +
                    p[at] * scale * difference_error;
                for (int64_t c = 0; c < d; ++c) {
                    add(dqkv, base + i, col + c, ds * k(j, c));
                    add(dqkv, base + j, h + col + c, ds * q(i, c));
                    add(dqkv, base + j, 2 * h + col + c, p[at] * g(i, c));
                    add(dqkv_bound, base + i, col + c, ds_error * std::abs(k(j, c)));
                    add(dqkv_bound, base + j, h + col + c, ds_error * std::abs(q(i, c)));
                    add(dqkv_bound, base + j, 2 * h + col + c,
                        (p_error[at] + p[at] * terms_s * kEps32) * std::abs(g(i, c)));
                }
            }
        }
        // The results are rounded once more.
        for (int64_t t = 0; t < s; ++t) {
            for (int64_t c = 0; c < d; ++c) {
                add(out_bound, base + t, col + c,
                    1e-12 + rounding * std::abs(out.get(base + t, col + c)));
                for (int64_t part = 0; part < 3; ++part) {
                    const int64_t at = part * h + col + c;
                    add(dqkv_bound, base + t, at,
                        1e-12 + rounding * (std::abs(dqkv.get(base + t, at)) +
                                            dqkv_bound.get(base + t, at)));
                }
            }
        }
    }
};

auto within(const Matrix& bound) {
    return [&bound](int64_t row, int64_t col) { return bound.get(row, col); };
}

class AttentionOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(AttentionOfType, AgreesWithTheTextbookInBothDirections) {
    const DType type = GetParam();
    for (const auto& shape : kShapes) {
        SCOPED_TRACE(testing::Message() << shape.sequences << " sequences of " << shape.seq_length
                                        << ", " << shape.heads << " heads of " << shape.head_size);
        const int64_t n = shape.tokens(), h = shape.hidden();
        const auto qkv = Matrix::random(n, 3 * h, type, 1, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, type, 2);
        const Naive naive(qkv, dout, shape, type);
        Matrix out(n, h, type), log_sum_exp(n, shape.heads, DType::fp32), dqkv(n, 3 * h, type);
        Workspace workspace(host::attention_workspace_bytes(shape, type, 1));
        host::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, workspace.span());
        host::causal_attention_backward(ctx, dout, qkv, out, log_sum_exp, shape, dqkv,
                                        workspace.span());
        expect_close(out, naive.out, within(naive.out_bound));
        expect_close(log_sum_exp, naive.log_sum_exp, [&](int64_t row, int64_t col) {
            // scores of magnitude at most 4 sqrt(d), in sums of d and s terms
            const auto d = static_cast<double>(shape.head_size);
            return ((d + 8) * 4 * std::sqrt(d) + static_cast<double>(shape.seq_length) +
                    4 * std::abs(naive.log_sum_exp.get(row, col))) *
                   kEps32;
        });
        expect_close(dqkv, naive.dqkv, within(naive.dqkv_bound));
    }
}

TEST_P(AttentionOfType, BitsAreTheSameForOneAndTwoThreads) {
    const DType type = GetParam();
    const AttentionShape shape{.sequences = 2, .seq_length = 150, .heads = 3, .head_size = 40};
    const int64_t n = shape.tokens(), h = shape.hidden();
    const auto qkv = Matrix::random(n, 3 * h, type, 1, -2.0, 2.0);
    const auto dout = Matrix::random(n, h, type, 2);
    std::vector<Matrix> results;
    for (const int threads : {1, 2}) {
        Context context({.threads = threads, .poll = {}});
        Matrix out(n, h, type), log_sum_exp(n, shape.heads, DType::fp32), dqkv(n, 3 * h, type);
        Workspace workspace(host::attention_workspace_bytes(shape, type, threads));
        host::causal_attention_forward(context, qkv, shape, out, log_sum_exp, workspace.span());
        host::causal_attention_backward(context, dout, qkv, out, log_sum_exp, shape, dqkv,
                                        workspace.span());
        for (const Matrix& result : {out, log_sum_exp, dqkv}) results.push_back(result);
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(results[i].same_bits(results[i + 3])) << i;
}

TEST_P(AttentionOfType, SurvivesScoresFarOutsideTheRangeOfExp) {
    const DType type = GetParam();
    const AttentionShape shape{.sequences = 1, .seq_length = 70, .heads = 1, .head_size = 16};
    const auto qkv = Matrix::random(70, 48, type, 1, -100.0, 100.0);
    Matrix out(70, 16, type), log_sum_exp(70, 1, DType::fp32);
    Workspace workspace(host::attention_workspace_bytes(shape, type, 1));
    host::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, workspace.span());
    for (int64_t row = 0; row < 70; ++row) {
        // a convex combination of values within +-100
        for (int64_t col = 0; col < 16; ++col) EXPECT_LE(std::abs(out.get(row, col)), 100.5);
        EXPECT_TRUE(std::isfinite(log_sum_exp.get(row, 0)));
    }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(Attention, PollsBetweenHeadsOnOneThread) {
    int polls = 0;
    Context ctx({.threads = 1, .poll = [&] { ++polls; }});
    const AttentionShape shape{.sequences = 2, .seq_length = 4, .heads = 3, .head_size = 4};
    const auto qkv = Matrix::random(8, 36, DType::fp32, 1);
    Matrix out(8, 12, DType::fp32), log_sum_exp(8, 3, DType::fp32);
    Workspace workspace(host::attention_workspace_bytes(shape, DType::fp32, 1));
    host::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, workspace.span());
    EXPECT_EQ(polls, 6);
}

TEST(ReferenceAttention, ForwardIsTheTextbooks) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{.sequences = 2, .seq_length = 9, .heads = 2, .head_size = 5};
    const auto qkv = Matrix::random(18, 30, DType::fp64, 1, -2.0, 2.0);
    const auto dout = Matrix::random(18, 10, DType::fp64, 2);
    const Naive naive(qkv, dout, shape, DType::fp64);
    Matrix out(18, 10, DType::fp64), log_sum_exp(18, 2, DType::fp64);
    reference::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, {});
    const auto bound = [](int64_t, int64_t) { return 1e-12; };
    expect_close(out, naive.out, bound);
    expect_close(log_sum_exp, naive.log_sum_exp, bound);
}

TEST(ReferenceAttention, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{.sequences = 2, .seq_length = 5, .heads = 2, .head_size = 3};
    auto qkv = Matrix::random(10, 18, DType::fp64, 1, -2.0, 2.0);
    const auto dout = Matrix::random(10, 6, DType::fp64, 2);
    const auto loss = [&] {
        Matrix out(10, 6, DType::fp64), log_sum_exp(10, 2, DType::fp64);
        reference::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, {});
        return dot(out, dout);
    };
    Matrix out(10, 6, DType::fp64), log_sum_exp(10, 2, DType::fp64), dqkv(10, 18, DType::fp64);
    reference::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, {});
    reference::causal_attention_backward(ctx, dout, qkv, out, log_sum_exp, shape, dqkv, {});
    expect_close(dqkv, numeric_gradient(qkv, loss),
                 [](int64_t, int64_t) { return kDifferenceBound; });
}

}  // namespace
}  // namespace vocabpipe::kernels::test
