// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/attention.hpp"
#include "tests/kernels/attention_oracle.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

const AttentionShape kShapes[] = {
    {.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1},
    {.sequences = 2, .seq_length = 3, .heads = 1, .head_size = 17, .kv_heads = 1},
    {.sequences = 1, .seq_length = 17, .heads = 3, .head_size = 8, .kv_heads = 3},
    {.sequences = 3, .seq_length = 64, .heads = 2, .head_size = 16, .kv_heads = 2},
    {.sequences = 2, .seq_length = 65, .heads = 2, .head_size = 64, .kv_heads = 2},
    {.sequences = 1, .seq_length = 129, .heads = 2, .head_size = 32, .kv_heads = 2},
    {.sequences = 1, .seq_length = 200, .heads = 1, .head_size = 5, .kv_heads = 1},
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

class AttentionOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(AttentionOfType, AgreesWithTheTextbookInBothDirections) {
    const DType type = GetParam();
    for (const auto& shape : kShapes) {
        SCOPED_TRACE(testing::Message() << shape.sequences << " sequences of " << shape.seq_length
                                        << ", " << shape.heads << " heads of " << shape.head_size);
        const int64_t n = shape.tokens(), h = shape.query_columns();
        const auto qkv = Matrix::random(n, 3 * h, type, 1, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, type, 2);
        const Naive naive(qkv, dout, shape, type);
        Matrix out(n, h, type), log_sum_exp(n, shape.heads, DType::fp32), dqkv(n, 3 * h, type);
        Workspace workspace(host::attention_workspace_bytes(shape, type, 1));
        host::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, workspace.span());
        host::causal_attention_backward(ctx, dout, qkv, out, log_sum_exp, shape, dqkv,
                                        workspace.span());
        expect_close(out, naive.out, within(naive.out_bound));
        expect_close(log_sum_exp, naive.log_sum_exp, log_sum_exp_bound(naive, shape));
        expect_close(dqkv, naive.dqkv, within(naive.dqkv_bound));
    }
}

TEST_P(AttentionOfType, BitsAreTheSameForOneAndTwoThreads) {
    const DType type = GetParam();
    const AttentionShape shape{
        .sequences = 2, .seq_length = 150, .heads = 3, .head_size = 40, .kv_heads = 3};
    const int64_t n = shape.tokens(), h = shape.query_columns();
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
    const AttentionShape shape{
        .sequences = 1, .seq_length = 70, .heads = 1, .head_size = 16, .kv_heads = 1};
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
    const AttentionShape shape{
        .sequences = 2, .seq_length = 4, .heads = 3, .head_size = 4, .kv_heads = 3};
    const auto qkv = Matrix::random(8, 36, DType::fp32, 1);
    Matrix out(8, 12, DType::fp32), log_sum_exp(8, 3, DType::fp32);
    Workspace workspace(host::attention_workspace_bytes(shape, DType::fp32, 1));
    host::causal_attention_forward(ctx, qkv, shape, out, log_sum_exp, workspace.span());
    EXPECT_EQ(polls, 6);
}

TEST(ReferenceAttention, ForwardIsTheTextbooks) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{
        .sequences = 2, .seq_length = 9, .heads = 2, .head_size = 5, .kv_heads = 2};
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
    const AttentionShape shape{
        .sequences = 2, .seq_length = 5, .heads = 2, .head_size = 3, .kv_heads = 2};
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
