// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/rms_norm_oracle.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct HeadNormCase {
    AttentionShape shape;
    int64_t gap;
};
// On a GPU heads are shared by 8, 16 and 32 lanes, by fewer than a warp has vectors for; odd ones.
const HeadNormCase kHeadNormCases[] = {
    {{.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1}, 3},
    {{.sequences = 2, .seq_length = 3, .heads = 3, .head_size = 17, .kv_heads = 1}, 3},
    {{.sequences = 2, .seq_length = 3, .heads = 4, .head_size = 17, .kv_heads = 2}, 3},
    {{.sequences = 1, .seq_length = 9, .heads = 3, .head_size = 130, .kv_heads = 1}, 3},
    {{.sequences = 1, .seq_length = 7, .heads = 4, .head_size = 64, .kv_heads = 2}, 8},
    {{.sequences = 1, .seq_length = 5, .heads = 2, .head_size = 128, .kv_heads = 1}, 0},
    {{.sequences = 1, .seq_length = 3, .heads = 2, .head_size = 200, .kv_heads = 2}, 8},
    {{.sequences = 1, .seq_length = 2, .heads = 1, .head_size = 264, .kv_heads = 1}, 8},
};
constexpr RmsNormOptions kOptions{.epsilon = 1e-3F, .weight_offset = 1};

Matrix columns(const Matrix& whole, int64_t first, int64_t count) {
    Matrix part(whole.rows(), count, whole.type());
    for (int64_t row = 0; row < whole.rows(); ++row) {
        for (int64_t col = 0; col < count; ++col) part.set(row, col, whole.get(row, first + col));
    }
    return part;
}

using HeadNorm = TypedOperatorTest;

TEST_P(HeadNorm, AgreesWithTheReferenceInBothDirectionsAndCopiesV) {
    for (const auto& [shape, gap] : kHeadNormCases) {
        SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.head_size);
        const int64_t n = shape.tokens(), width = shape.qkv_columns(), d = shape.head_size;
        const int64_t heads = shape.heads + shape.kv_heads;
        const auto qkv = random_with_gap(n, width, type(), gap, 1, -0.5, 1.5);
        const auto dout = random_with_gap(n, width, type(), gap, 2);
        const auto gamma_q = random_with_gap(1, d, type(), gap, 3);
        const auto gamma_k = random_with_gap(1, d, type(), gap, 4);
        Matrix exact(n, width, DType::fp64), exact_dqkv(n, width, DType::fp64);
        Matrix exact_statistics(n, heads, DType::fp64);
        reference::head_norm_forward(host, qkv, gamma_q, gamma_k, kOptions, shape, exact,
                                     exact_statistics);
        const Uploaded in = up(qkv), gradient = up(dout), of_q = up(gamma_q), of_k = up(gamma_k);
        const Uploaded normed = poison(n, width, type(), gap),
                       before = poison(n, width, type(), gap);
        const Uploaded inverse_rms = poison(n, heads, DType::fp32);
        ops().head_norm_forward(ctx(), in, of_q, of_k, kOptions, shape, normed, inverse_rms);
        ops().head_norm_backward_input(ctx(), gradient, in, of_q, of_k, kOptions, inverse_rms,
                                       shape, before);
        const Matrix out = normed.download(), dqkv = before.download();
        const Matrix statistics = inverse_rms.download();
        reference::head_norm_backward_input(host, dout, qkv, gamma_q, gamma_k, kOptions, statistics,
                                            shape, exact_dqkv);
        for (int64_t head = 0; head < heads; ++head) {
            SCOPED_TRACE(testing::Message() << "head " << head);
            const auto part = [&](const Matrix& whole) { return columns(whole, head * d, d); };
            const Matrix x = part(qkv), y = part(exact), dx = part(exact_dqkv), dy = part(dout);
            const Matrix& gamma = head < shape.heads ? gamma_q : gamma_k;
            const Matrix own = columns(exact_statistics, head, 1);
            const Matrix given = columns(statistics, head, 1);
            const RmsNormErrors forward{x, gamma, kOptions, own, type()};
            expect_close(part(out), y, forward.of_forward(y));
            expect_close(given, own, forward.of_statistics());
            const RmsNormErrors backward{x, gamma, kOptions, given, type()};
            expect_close(part(dqkv), dx, backward.of_backward_input(dy, dx));
        }
        const auto v = [&, kv = shape.key_columns()](const Matrix& whole) {
            return columns(whole, heads * d, kv);
        };
        EXPECT_TRUE(v(out).same_bits(v(qkv)));
        EXPECT_TRUE(v(dqkv).same_bits(v(dout)));
        EXPECT_TRUE(out.gaps_are_intact() && statistics.gaps_are_intact() &&
                    dqkv.gaps_are_intact());
    }
}

TEST_P(HeadNorm, WeightGradientsSumOverTokensAndHeadsAndAccumulate) {
    for (const auto& [shape, gap] : kHeadNormCases) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(testing::Message() << shape.head_size << " " << accumulate);
            const int64_t n = shape.tokens(), d = shape.head_size;
            const auto qkv = random_with_gap(n, shape.qkv_columns(), type(), gap, 1, -0.5, 1.5);
            const auto dout = random_with_gap(n, shape.qkv_columns(), type(), gap, 2);
            const auto statistics =
                Matrix::random(n, shape.heads + shape.kv_heads, DType::fp32, 3, 0.5, 2.0);
            const Matrix start_q = start_of_sum(1, d, accumulate, 4);
            const Matrix start_k = start_of_sum(1, d, accumulate, 5);
            auto exact_q = start_q.as(DType::fp64), exact_k = start_k.as(DType::fp64);
            auto size_q = start_q.magnitude(), size_k = start_k.magnitude();
            reference::head_norm_backward_weight(host, dout, qkv, statistics, shape, exact_q,
                                                 exact_k, accumulate);
            reference::head_norm_backward_weight(host, dout.magnitude(), qkv.magnitude(),
                                                 statistics, shape, size_q, size_k, accumulate);
            const Uploaded of_q = up(start_q), of_k = up(start_k);
            ops().head_norm_backward_weight(ctx(), up(dout), up(qkv), up(statistics), shape, of_q,
                                            of_k, accumulate);
            // one term per token and head, and what was there; two roundings inside of a term
            const auto bound = [n](const Matrix& magnitude, int64_t heads) {
                return [&magnitude, terms = static_cast<double>(n * heads + 4)](
                           int64_t, int64_t col) { return terms * kEps32 * magnitude.get(0, col); };
            };
            expect_close(of_q.download(), exact_q, bound(size_q, shape.heads));
            expect_close(of_k.download(), exact_k, bound(size_k, shape.kv_heads));
        }
    }
}

TEST_P(HeadNorm, BitsAreTheSameForAnyThreads) {
    const AttentionShape shape{
        .sequences = 3, .seq_length = 37, .heads = 6, .head_size = 75, .kv_heads = 2};
    const int64_t n = shape.tokens(), width = shape.qkv_columns(), d = shape.head_size;
    const Uploaded qkv = up(Matrix::random(n, width, type(), 1));
    const Uploaded dout = up(Matrix::random(n, width, type(), 2));
    const Uploaded gamma = up(Matrix::random(1, d, type(), 3));
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Uploaded out = poison(n, width, type()), statistics = poison(n, 8, DType::fp32);
        const Uploaded dqkv = poison(n, width, type());
        const Uploaded of_q = poison(1, d, DType::fp32), of_k = poison(1, d, DType::fp32);
        ops().head_norm_forward(ctx, qkv, gamma, gamma, {}, shape, out, statistics);
        ops().head_norm_backward_input(ctx, dout, qkv, gamma, gamma, {}, statistics, shape, dqkv);
        ops().head_norm_backward_weight(ctx, dout, qkv, statistics, shape, of_q, of_k, false);
        return std::vector{out.download(), statistics.download(), dqkv.download(), of_q.download(),
                           of_k.download()};
    });
}

INSTANTIATE_TEST_SUITE_P(Devices, HeadNorm,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using HeadNormArguments = OperatorTest<>;

TEST_P(HeadNormArguments, QkvHasTheColumnsOfItsHeads) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 2, .heads = 4, .head_size = 4, .kv_heads = 2};
    const Uploaded qkv = poison(2, 48, DType::fp32), out = poison(2, 48, DType::fp32);
    const Uploaded gamma = poison(1, 4, DType::fp32), statistics = poison(2, 6, DType::fp32);
    EXPECT_THROW(ops().head_norm_forward(ctx(), qkv, gamma, gamma, {}, shape, out, statistics),
                 UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, HeadNormArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

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
