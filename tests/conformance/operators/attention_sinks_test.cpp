// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/attention_oracle.hpp"
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

const AttentionShape kSinkShapes[] = {
    {.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1},
    {.sequences = 2, .seq_length = 5, .heads = 3, .head_size = 17, .kv_heads = 1},
    {.sequences = 1, .seq_length = 40, .heads = 8, .head_size = 64, .kv_heads = 2},
    {.sequences = 2,
     .seq_length = 9,
     .heads = 4,
     .head_size = 8,
     .kv_heads = 2,
     .value_head_size = 40,
     .queries = 3},
};

/// Results of attention, and sinks that outweigh all other scores, count nothing, and are among
/// them.
struct SinksProblem {
    Matrix sinks, out, log_sum_exp, dout;

    SinksProblem(const AttentionShape& shape, DType type)
        : sinks(Matrix::random(1, shape.heads, type, 1, -3.0, 9.0)),
          out(Matrix::random(shape.query_tokens(), shape.output_columns(), type, 2)),
          log_sum_exp(Matrix::random(shape.query_tokens(), shape.heads, DType::fp32, 3, -3.0, 9.0)),
          dout(Matrix::random(shape.query_tokens(), shape.output_columns(), type, 4)) {
        if (shape.heads < 3) return;
        sinks.set(0, 0, 120);
        sinks.set(0, 2, -120);
    }
};

using AttentionSinks = TypedOperatorTest;

TEST_P(AttentionSinks, AgreeWithTheReferenceInBothDirections) {
    for (const AttentionShape& shape : kSinkShapes) {
        SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.value_size());
        const SinksProblem problem(shape, type());
        Matrix exact = problem.out.as(DType::fp64),
               exact_sums = problem.log_sum_exp.as(DType::fp64);
        reference::attention_sinks_forward(host, problem.sinks, shape, exact, exact_sums);
        const Uploaded sinks = up(problem.sinks), out = up(problem.out);
        const Uploaded sums = up(problem.log_sum_exp);
        ops().attention_sinks_forward(ctx(), sinks, shape, out, sums);
        // The exponent of the factor is a difference of numbers of at most 130, rounded a few
        // times.
        const auto head_of = [&](int64_t col) { return col / shape.value_size(); };
        const auto exponent = [&](int64_t row, int64_t head) {
            return std::abs(problem.log_sum_exp.get(row, head)) +
                   std::abs(problem.sinks.get(0, head)) + 2;
        };
        expect_close(sums.download(), exact_sums,
                     [&](int64_t row, int64_t head) { return 4 * kEps32 * exponent(row, head); });
        const double rounding = unit_roundoff(type()) * 1.01;
        expect_close(out.download(), exact, [&](int64_t row, int64_t col) {
            return (8 * kEps32 * exponent(row, head_of(col)) + rounding) *
                       std::abs(exact.get(row, col)) +
                   1e-37;
        });

        const Matrix after = out.download(), sums_after = sums.download();
        const Uploaded dscores = poison(shape.query_tokens(), shape.heads, DType::fp32);
        ops().attention_sinks_backward(ctx(), sinks, up(problem.dout), out, sums, shape, dscores);
        Matrix gradient(shape.query_tokens(), shape.heads, DType::fp64), size = gradient;
        reference::attention_sinks_backward(host, problem.sinks, problem.dout, after, sums_after,
                                            shape, gradient);
        reference::attention_sinks_backward(host, problem.sinks, problem.dout.magnitude(),
                                            after.magnitude(), sums_after, shape, size);
        expect_close(dscores.download(), gradient, [&](int64_t row, int64_t head) {
            const auto terms = static_cast<double>(shape.value_size() + 4);
            return (terms + 8 * exponent(row, head)) * kEps32 * std::abs(size.get(row, head)) +
                   1e-37;
        });
    }
}

TEST_P(AttentionSinks, BitsAreTheSameForAnyThreads) {
    const AttentionShape shape{
        .sequences = 3, .seq_length = 37, .heads = 6, .head_size = 75, .kv_heads = 2};
    const SinksProblem problem(shape, type());
    const Uploaded sinks = up(problem.sinks), dout = up(problem.dout);
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Uploaded out = up(problem.out), sums = up(problem.log_sum_exp);
        const Uploaded dscores = poison(shape.query_tokens(), shape.heads, DType::fp32);
        ops().attention_sinks_forward(ctx, sinks, shape, out, sums);
        ops().attention_sinks_backward(ctx, sinks, dout, out, sums, shape, dscores);
        return std::vector{out.download(), sums.download(), dscores.download()};
    });
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionSinks,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using AttentionSinksArguments = OperatorTest<>;

TEST_P(AttentionSinksArguments, FitTogether) {
    const AttentionShape shape{
        .sequences = 2, .seq_length = 3, .heads = 4, .head_size = 5, .kv_heads = 2};
    const auto some = [&](int64_t rows, int64_t cols, DType type = DType::fp32) {
        return up(Matrix::random(rows, cols, type, 1));
    };
    const Uploaded sinks = some(1, 4), out = some(6, 20), sums = some(6, 4);
    const auto forward = [&](const Uploaded& of, const Uploaded& in, const Uploaded& with) {
        ops().attention_sinks_forward(ctx(), of, shape, in, with);
    };
    EXPECT_THROW(forward(some(1, 3), out, sums), UsageError);
    EXPECT_THROW(forward(some(2, 4), out, sums), UsageError);
    EXPECT_THROW(forward(some(1, 4, DType::bf16), out, sums), UsageError);
    EXPECT_THROW(forward(sinks, some(6, 19), sums), UsageError);
    EXPECT_THROW(forward(sinks, some(5, 20), sums), UsageError);
    EXPECT_THROW(forward(sinks, out, some(6, 5)), UsageError);
    EXPECT_THROW(forward(sinks, out, some(6, 4, DType::bf16)), UsageError);
    const auto backward = [&](const Uploaded& dout, const Uploaded& dscores) {
        ops().attention_sinks_backward(ctx(), sinks, dout, out, sums, shape, dscores);
    };
    EXPECT_THROW(backward(some(6, 19), some(6, 4)), UsageError);
    EXPECT_THROW(backward(some(6, 20, DType::bf16), some(6, 4)), UsageError);
    EXPECT_THROW(backward(out, some(6, 5)), UsageError);
    EXPECT_THROW(backward(out, some(6, 4, DType::bf16)), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionSinksArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(ReferenceAttentionSinks, GradientsOfAllInputsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{.sequences = 2,
                               .seq_length = 5,
                               .heads = 4,
                               .head_size = 3,
                               .kv_heads = 2,
                               .softcap = 1.5F,
                               .window = 3};
    auto qkv = Matrix::random(10, shape.qkv_columns(), DType::fp64, 1, -2.0, 2.0);
    auto sinks = Matrix::random(1, 4, DType::fp64, 2, -2.0, 2.0);
    const auto dout = Matrix::random(10, shape.output_columns(), DType::fp64, 3);
    Matrix out(10, shape.output_columns(), DType::fp64), log_sum_exp(10, 4, DType::fp64);
    const auto loss = [&] {
        reference::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                            shape, {}, out, log_sum_exp, {});
        reference::attention_sinks_forward(ctx, sinks, shape, out, log_sum_exp);
        return dot(out, dout);
    };
    loss();
    Matrix dqkv(10, shape.qkv_columns(), DType::fp64), dscores(10, 4, DType::fp64);
    Matrix dsinks(1, 4, DType::fp64);
    reference::causal_attention_backward(ctx, dout, queries_of(qkv, shape),
                                         keys_values_of(qkv, shape), out, log_sum_exp, shape, {},
                                         queries_of(dqkv, shape), keys_values_of(dqkv, shape), {});
    reference::attention_sinks_backward(ctx, sinks, dout, out, log_sum_exp, shape, dscores);
    reference::column_sums(ctx, dscores, dsinks, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dqkv, numeric_gradient(qkv, loss), bound);
    expect_close(dsinks, numeric_gradient(sinks, loss), bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
