// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"
#include "tests/kernels/rms_norm_oracle.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

const AttentionShape kHeadNormShapes[] = {
    {.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1},
    {.sequences = 2, .seq_length = 3, .heads = 4, .head_size = 17, .kv_heads = 2},
    {.sequences = 1, .seq_length = 9, .heads = 3, .head_size = 130, .kv_heads = 1},
};
constexpr RmsNormOptions kOptions{.epsilon = 1e-3F, .weight_offset = 1};

Matrix columns(const Matrix& whole, int64_t first, int64_t count) {
    Matrix part(whole.rows(), count, whole.type());
    for (int64_t row = 0; row < whole.rows(); ++row) {
        for (int64_t col = 0; col < count; ++col) part.set(row, col, whole.get(row, first + col));
    }
    return part;
}

class HeadNormOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(HeadNormOfType, AgreesWithTheReferenceInBothDirectionsAndKeepsV) {
    const DType type = GetParam();
    for (const AttentionShape& shape : kHeadNormShapes) {
        SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.head_size);
        const int64_t n = shape.tokens(), width = shape.qkv_columns(), d = shape.head_size;
        const int64_t heads = shape.heads + shape.kv_heads;
        const auto qkv = Matrix::random(n, width, type, 1, -0.5, 1.5);
        const auto dout = Matrix::random(n, width, type, 2);
        const auto gamma_q = Matrix::random(1, d, type, 3);
        const auto gamma_k = Matrix::random(1, d, type, 4);
        Matrix out(n, width, type), statistics(n, heads, DType::fp32), dqkv(n, width, type);
        Matrix exact(n, width, DType::fp64), exact_dqkv(n, width, DType::fp64);
        Matrix exact_statistics(n, heads, DType::fp64);
        host::head_norm_forward(ctx, qkv, gamma_q, gamma_k, kOptions, shape, out, statistics);
        reference::head_norm_forward(ctx, qkv, gamma_q, gamma_k, kOptions, shape, exact,
                                     exact_statistics);
        host::head_norm_backward_input(ctx, dout, qkv, gamma_q, gamma_k, kOptions, statistics,
                                       shape, dqkv);
        reference::head_norm_backward_input(ctx, dout, qkv, gamma_q, gamma_k, kOptions, statistics,
                                            shape, exact_dqkv);
        for (int64_t head = 0; head < heads; ++head) {
            SCOPED_TRACE(testing::Message() << "head " << head);
            const auto part = [&](const Matrix& whole) { return columns(whole, head * d, d); };
            const Matrix x = part(qkv), y = part(exact), dx = part(exact_dqkv), dy = part(dout);
            const Matrix& gamma = head < shape.heads ? gamma_q : gamma_k;
            const Matrix own = columns(exact_statistics, head, 1);
            const RmsNormErrors forward{x, gamma, kOptions, own, type};
            expect_close(part(out), y, forward.of_forward(y));
            expect_close(columns(statistics, head, 1), own, forward.of_statistics());
            const Matrix given = columns(statistics, head, 1);
            const RmsNormErrors backward{x, gamma, kOptions, given, type};
            expect_close(part(dqkv), dx, backward.of_backward_input(dy, dx));
        }
        const auto v = [&](const Matrix& whole) {
            return columns(whole, heads * d, shape.kv_columns());
        };
        EXPECT_TRUE(v(out).same_bits(v(qkv)));
        EXPECT_TRUE(v(dqkv).same_bits(v(dout)));
        EXPECT_TRUE(out.gaps_are_intact() && statistics.gaps_are_intact() &&
                    dqkv.gaps_are_intact());
    }
}

TEST_P(HeadNormOfType, WeightGradientsAgreeWithTheReferenceAndAccumulate) {
    const DType type = GetParam();
    for (const AttentionShape& shape : kHeadNormShapes) {
        const int64_t n = shape.tokens(), width = shape.qkv_columns(), d = shape.head_size;
        for (const bool accumulate : {false, true}) {
            const auto qkv = Matrix::random(n, width, type, 1);
            const auto dout = Matrix::random(n, width, type, 2);
            const auto statistics =
                Matrix::random(n, shape.heads + shape.kv_heads, DType::fp32, 3, 0.5, 2.0);
            const auto start = [&](unsigned seed) {
                return accumulate ? Matrix::random(1, d, DType::fp32, seed)
                                  : Matrix(1, d, DType::fp32);
            };
            auto of_q = start(4), of_k = start(5);
            auto exact_q = of_q.as(DType::fp64), exact_k = of_k.as(DType::fp64);
            auto magnitude_q = of_q.magnitude(), magnitude_k = of_k.magnitude();
            host::head_norm_backward_weight(ctx, dout, qkv, statistics, shape, of_q, of_k,
                                            accumulate);
            reference::head_norm_backward_weight(ctx, dout, qkv, statistics, shape, exact_q,
                                                 exact_k, accumulate);
            reference::head_norm_backward_weight(ctx, dout.magnitude(), qkv.magnitude(), statistics,
                                                 shape, magnitude_q, magnitude_k, accumulate);
            // one term per token and head, and what was there; two roundings inside of a term
            const auto bound = [&](const Matrix& magnitude) {
                return [&](int64_t, int64_t col) {
                    return static_cast<double>(n * shape.heads + 4) * kEps32 *
                           magnitude.get(0, col);
                };
            };
            expect_close(of_q, exact_q, bound(magnitude_q));
            expect_close(of_k, exact_k, bound(magnitude_k));
        }
    }
}

TEST_P(HeadNormOfType, BitsAreTheSameForOneAndTwoThreads) {
    const DType type = GetParam();
    const AttentionShape shape{
        .sequences = 3, .seq_length = 37, .heads = 6, .head_size = 75, .kv_heads = 2};
    const int64_t n = shape.tokens(), width = shape.qkv_columns();
    const auto qkv = Matrix::random(n, width, type, 1);
    const auto dout = Matrix::random(n, width, type, 2);
    const auto gamma = Matrix::random(1, shape.head_size, type, 3);
    std::vector<Matrix> results;
    for (const int threads : {1, 2}) {
        Context context({.threads = threads, .poll = {}});
        Matrix out(n, width, type), statistics(n, 8, DType::fp32), dqkv(n, width, type);
        Matrix of_q(1, shape.head_size, DType::fp32), of_k(1, shape.head_size, DType::fp32);
        host::head_norm_forward(context, qkv, gamma, gamma, {}, shape, out, statistics);
        host::head_norm_backward_input(context, dout, qkv, gamma, gamma, {}, statistics, shape,
                                       dqkv);
        host::head_norm_backward_weight(context, dout, qkv, statistics, shape, of_q, of_k, false);
        for (const Matrix& result : {out, statistics, dqkv, of_q, of_k}) results.push_back(result);
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(results[i].same_bits(results[i + 5])) << i;
}

INSTANTIATE_TEST_SUITE_P(Types, HeadNormOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(HeadNorm, RefusesQkvOfAnotherShape) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{
        .sequences = 1, .seq_length = 2, .heads = 4, .head_size = 4, .kv_heads = 2};
    Matrix qkv(2, 48, DType::fp32), out(2, 48, DType::fp32), gamma(1, 4, DType::fp32);
    Matrix statistics(2, 6, DType::fp32);
    EXPECT_THROW(host::head_norm_forward(ctx, qkv, gamma, gamma, {}, shape, out, statistics),
                 UsageError);
}

TEST(ReferenceHeadNorm, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{
        .sequences = 1, .seq_length = 3, .heads = 4, .head_size = 3, .kv_heads = 2};
    const int64_t n = shape.tokens(), width = shape.qkv_columns(), d = shape.head_size;
    auto qkv = Matrix::random(n, width, DType::fp64, 1);
    auto gamma_q = Matrix::random(1, d, DType::fp64, 2);
    auto gamma_k = Matrix::random(1, d, DType::fp64, 3);
    const auto dout = Matrix::random(n, width, DType::fp64, 4);
    const RmsNormOptions options{.epsilon = 0.1F, .weight_offset = 1};
    Matrix out(n, width, DType::fp64), statistics(n, 6, DType::fp64);
    const auto loss = [&] {
        Matrix own(n, 6, DType::fp64);
        reference::head_norm_forward(ctx, qkv, gamma_q, gamma_k, options, shape, out, own);
        return dot(out, dout);
    };
    Matrix dqkv(n, width, DType::fp64), of_q(1, d, DType::fp64), of_k(1, d, DType::fp64);
    reference::head_norm_forward(ctx, qkv, gamma_q, gamma_k, options, shape, out, statistics);
    reference::head_norm_backward_input(ctx, dout, qkv, gamma_q, gamma_k, options, statistics,
                                        shape, dqkv);
    reference::head_norm_backward_weight(ctx, dout, qkv, statistics, shape, of_q, of_k, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dqkv, numeric_gradient(qkv, loss), bound);
    expect_close(of_q, numeric_gradient(gamma_q, loss), bound);
    expect_close(of_k, numeric_gradient(gamma_k, loss), bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
