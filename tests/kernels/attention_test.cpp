// SPDX-License-Identifier: Apache-2.0
// What the host alone promises of attention; what it computes is compared in tests/conformance/.
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <new>
#include <vector>

#include "tests/kernels/fused_qkv.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

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

/// out and dqkv.
std::vector<Matrix> run_on_host(Context& ctx, const AttentionShape& shape, const Matrix& qkv) {
    const DType type = qkv.type();
    const int64_t n = shape.tokens(), h = shape.query_columns();
    const Matrix dout = Matrix::random(n, h, type, 2);
    Matrix out(n, h, type), log_sum_exp(n, shape.heads, DType::fp32);
    Matrix dqkv(n, shape.qkv_columns(), type);
    Workspace workspace(host::attention_workspace_bytes(shape, type, 1));
    host::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), shape,
                                   {}, out, log_sum_exp, workspace.span());
    host::causal_attention_backward(ctx, dout, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                    out, log_sum_exp, shape, {}, queries_of(dqkv, shape),
                                    keys_values_of(dqkv, shape), workspace.span());
    return {out, dqkv};
}

class AttentionOfType : public testing::TestWithParam<DType> {};

/// To the key, not only to the block of keys.
TEST_P(AttentionOfType, NeverReadsKeysThatNoQueryOfABlockSees) {
    const DType type = GetParam();
    const AttentionShape shape{
        .sequences = 1, .seq_length = 200, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 20};
    auto qkv = Matrix::random(200, 24, type, 1);
    for (int64_t t = 0; t < 40; ++t) {
        for (int64_t i = 0; i < 24; ++i) qkv.set(t, i, NAN);
    }
    Context ctx({.threads = 1, .poll = {}});
    const auto results = run_on_host(ctx, shape, qkv);
    const Matrix &out = results[0], &dqkv = results[1];
    EXPECT_TRUE(std::isnan(out.get(39, 0)) && std::isnan(dqkv.get(39, 0)));
    for (int64_t t = 64; t < 200; ++t) {
        EXPECT_TRUE(std::isfinite(out.get(t, 0)) && std::isfinite(dqkv.get(t, 0))) << t;
    }
}

TEST_P(AttentionOfType, NeedsLessMemoryWithAWindowOrFewQueries) {
    const AttentionShape whole{
        .sequences = 1, .seq_length = 2000, .heads = 1, .head_size = 8, .kv_heads = 1};
    AttentionShape window = whole, queries = whole;
    window.window = 20;
    queries.queries = 10;
    const auto bytes = [&](const AttentionShape& shape) {
        return host::attention_workspace_bytes(shape, GetParam(), 1);
    };
    EXPECT_LT(bytes(window), bytes(whole));
    EXPECT_LT(bytes(queries), bytes(whole));
    for (const int64_t n : {64, 1000, 2000}) {
        queries.queries = n;
        EXPECT_EQ(bytes(queries), bytes(whole)) << n;
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
    host::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), shape,
                                   {}, out, log_sum_exp, workspace.span());
    EXPECT_EQ(polls, 6);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
