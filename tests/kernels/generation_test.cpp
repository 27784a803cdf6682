// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/generation_cases.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

class GenerationOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(GenerationOfType, CachedAttentionIsThatOfTheLastTokensOfASequence) {
    const DType type = GetParam();
    for (const CachedCase& one : kCachedCases) {
        SCOPED_TRACE(testing::Message() << one.shape.heads << " heads of " << one.shape.head_size);
        const CachedTensors tensors(one, type);
        Matrix out(one.queries, one.shape.query_columns(), type);
        host::cached_attention_forward(ctx, tensors.q, tensors.kv, one.shape, out);
        expect_close(out, tensors.exact(ctx), tensors.bound());
    }
}

TEST_P(GenerationOfType, BitsOfATokenDependOnNeitherItsCompanyNorTheThreads) {
    const DType type = GetParam();
    const CachedCase& one = kCachedCases[3];
    const CachedTensors tensors(one, type);
    Context pair({.threads = 2, .poll = {}});
    Matrix together(one.queries, one.shape.query_columns(), type), alone = together.as(type);
    host::cached_attention_forward(pair, tensors.q, tensors.kv, one.shape, together);
    for (int64_t n = 0; n < one.queries; ++n) {
        AttentionShape up_to = one.shape;
        up_to.seq_length = one.shape.seq_length - one.queries + n + 1;
        host::cached_attention_forward(ctx, tensors.q.view().row_range(n, 1),
                                       tensors.kv.view().row_range(0, up_to.seq_length), up_to,
                                       alone.view().row_range(n, 1));
    }
    EXPECT_TRUE(together.same_bits(alone));
}

TEST_P(GenerationOfType, LogitsAgreeWithTheReference) {
    const DType type = GetParam();
    for (const float softcap : {0.0F, 3.0F}) {
        for (const int64_t h : {1, 17, 64, 200}) {
            const auto x = Matrix::random(1, h, type, 1), w = Matrix::random(37, h, type, 2);
            Matrix z(1, 37, DType::fp32), exact(1, 37, DType::fp64);
            host::logits_forward(ctx, x, w, softcap, z);
            reference::logits_forward(ctx, x, w, softcap, exact);
            // h products of at most 1, added up in fp32; the cap's slope is at most 1
            expect_close(z, exact, [&](int64_t, int64_t) {
                return static_cast<double>(h + 20) * static_cast<double>(h) * kEps32;
            });
        }
    }
}

TEST_P(GenerationOfType, LogitsOfShardsAreThoseOfTheWholeToTheBit) {
    const DType type = GetParam();
    constexpr int64_t kRows = 1009, kHidden = 77;
    const auto x = Matrix::random(1, kHidden, type, 1), w = Matrix::random(kRows, kHidden, type, 2);
    Matrix whole(1, kRows, DType::fp32), parts(1, kRows, DType::fp32);
    Context pair({.threads = 2, .poll = {}});
    host::logits_forward(pair, x, w, 3, whole);
    for (const auto& [first, rows] : {std::pair{0, 336}, {336, 0}, {336, 1}, {337, 672}}) {
        host::logits_forward(ctx, x, w.view().row_range(first, rows), 3,
                             parts.view().column_range(first, rows));
    }
    EXPECT_TRUE(whole.same_bits(parts));
}

INSTANTIATE_TEST_SUITE_P(Types, GenerationOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(ReferenceGeneration, CachedAttentionOfAWholeSequenceIsCausalAttention) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{.sequences = 1,
                               .seq_length = 40,
                               .heads = 6,
                               .head_size = 10,
                               .kv_heads = 2,
                               .softcap = 3,
                               .window = 17};
    const auto qkv = Matrix::random(40, shape.qkv_columns(), DType::fp64, 1, -2.0, 2.0);
    Matrix whole(40, shape.query_columns(), DType::fp64), last = whole.as(DType::fp64);
    Matrix log_sum_exp(40, shape.heads, DType::fp64);
    reference::causal_attention_forward(ctx, qkv, shape, {}, whole, log_sum_exp, {});
    const ConstTensor all = qkv.view();
    const int64_t q = shape.query_columns();
    reference::cached_attention_forward(ctx, all.column_range(0, q),
                                        all.column_range(q, 2 * shape.kv_columns()), shape, last);
    expect_close(last, whole, [](int64_t, int64_t) { return 1e-13; });
}

TEST(Generation, RefusesTensorsThatDoNotFitTogether) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{
        .sequences = 1, .seq_length = 5, .heads = 2, .head_size = 4, .kv_heads = 1};
    const Matrix q(6, 8, DType::fp32), kv(5, 8, DType::fp32);
    Matrix out(6, 8, DType::fp32);
    EXPECT_THROW(host::cached_attention_forward(ctx, q, kv, shape, out), UsageError);
    const Matrix w(3, 7, DType::fp32);
    Matrix z(1, 3, DType::fp32);
    EXPECT_THROW(host::logits_forward(ctx, q, w, 0, z), UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
