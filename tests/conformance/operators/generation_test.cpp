// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/generation_cases.hpp"
#include "tests/conformance/operator_test.hpp"
#include "tests/kernels/fused_qkv.hpp"

namespace vocabpipe::kernels::test {
namespace {

using Generation = TypedOperatorTest;

TEST_P(Generation, CachedAttentionIsThatOfTheLastTokensOfASequence) {
    for (const CachedCase& one : kCachedCases) {
        SCOPED_TRACE(testing::Message() << one.shape.heads << " heads of " << one.shape.head_size
                                        << ", values of " << one.shape.value_size());
        const CachedTensors tensors(one, type());
        const Uploaded q = up(tensors.q), kv = up(tensors.kv);
        const Uploaded sinks = up(tensors.sinks);
        const Uploaded out = poison(one.queries, one.shape.output_columns(), type());
        for (const bool with_sinks : {false, true}) {
            SCOPED_TRACE(with_sinks);
            const Matrix result = with_any_threads([&](Context& ctx) {
                ops().cached_attention_forward(ctx, q, kv, with_sinks ? sinks : ConstTensor(),
                                               one.shape, out);
                return out.download();
            });
            expect_close(result, tensors.exact(host, with_sinks), tensors.bound());
        }
    }
}

TEST_P(Generation, LogitsAgreeWithTheReference) {
    for (const float softcap : {0.0F, 3.0F}) {
        for (const int64_t h : {1, 17, 64, 200, 520}) {
            const auto x = Matrix::random(1, h, type(), 1), w = Matrix::random(37, h, type(), 2);
            const Uploaded z = poison(1, 37, DType::fp32);
            Matrix exact(1, 37, DType::fp64);
            ops().logits_forward(ctx(), up(x), up(w), softcap, z);
            reference::logits_forward(host, x, w, softcap, exact);
            // h products of at most 1, added up in fp32; the cap's slope is at most 1
            expect_close(z.download(), exact, [&](int64_t, int64_t) {
                return static_cast<double>(h + 20) * static_cast<double>(h) * kEps32;
            });
        }
    }
}

TEST_P(Generation, BitsOfATokenDoNotDependOnItsCompany) {
    const CachedCase& one = kCachedCases[3];
    const CachedTensors tensors(one, type());
    const Uploaded q = up(tensors.q), kv = up(tensors.kv);
    const Uploaded together = poison(one.queries, one.shape.query_columns(), type());
    const Uploaded alone = poison(one.queries, one.shape.query_columns(), type());
    ops().cached_attention_forward(ctx(), q, kv, {}, one.shape, together);
    for (int64_t n = 0; n < one.queries; ++n) {
        AttentionShape up_to = one.shape;
        up_to.seq_length = one.shape.seq_length - one.queries + n + 1;
        ops().cached_attention_forward(ctx(), q.view().row_range(n, 1),
                                       kv.view().row_range(0, up_to.seq_length), {}, up_to,
                                       alone.view().row_range(n, 1));
    }
    EXPECT_TRUE(together.download().same_bits(alone.download()));
}

TEST_P(Generation, LogitsOfShardsAreThoseOfTheWholeToTheBit) {
    struct Vocabulary {
        int64_t rows, hidden;
        std::vector<int64_t> cuts;
    };
    for (const auto& [rows, h, cuts] : {Vocabulary{1009, 77, {0, 336, 336, 337, 1009}},
                                        {37, 1, {0, 8, 8, 9, 37}},
                                        {37, 17, {0, 8, 8, 9, 37}},
                                        {37, 64, {0, 8, 8, 9, 37}},
                                        {37, 520, {0, 8, 8, 9, 37}}}) {
        for (const float softcap : {0.0F, 3.0F}) {
            const Uploaded x = up(Matrix::random(1, h, type(), 1));
            const Uploaded w = up(Matrix::random(rows, h, type(), 2));
            const Uploaded whole = poison(1, rows, DType::fp32),
                           parts = poison(1, rows, DType::fp32);
            const Matrix expected = with_any_threads([&](Context& ctx) {
                ops().logits_forward(ctx, x, w, softcap, whole);
                return whole.download();
            });
            for (size_t i = 0; i + 1 < cuts.size(); ++i) {
                const int64_t count = cuts[i + 1] - cuts[i];
                ops().logits_forward(ctx(), x, w.view().row_range(cuts[i], count), softcap,
                                     parts.view().column_range(cuts[i], count));
            }
            EXPECT_TRUE(parts.download().same_bits(expected)) << "h " << h;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Generation,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

/// The reference has no loops for products of rows.
using GenerationOfRows = TypedOperatorTest;

TEST_P(GenerationOfRows, ProductsAndLogitsHaveTheBitsThatTheyHaveAlone) {
    for (const int64_t in : {1, 17, 64, 200, 520}) {
        const Uploaded x = up(Matrix::random(3, in, type(), 1));
        const Uploaded w = up(Matrix::random(37, in, type(), 2));
        const Uploaded bias = up(Matrix::random(1, 37, type(), 3));
        const Uploaded residual = up(Matrix::random(3, 37, type(), 4));
        const Uploaded scratch = poison(3, 37, type());
        const auto expect_same = [&](DType made, const auto& together, const auto& alone) {
            const Uploaded all = poison(3, 37, made), rows = poison(3, 37, made);
            const Matrix expected = with_any_threads([&](Context& ctx) {
                together(ctx, all.view());
                return all.download();
            });
            for (int64_t n = 0; n < 3; ++n) alone(n, rows.view().row_range(n, 1));
            EXPECT_TRUE(rows.download().same_bits(expected)) << "in " << in;
        };
        expect_same(
            type(),
            [&](Context& ctx, Tensor y) { ops().linear_rows_forward(ctx, x, w, bias, {}, {}, y); },
            [&](int64_t n, Tensor y) {
                ops().linear_forward(ctx(), x.view().row_range(n, 1), w, bias, y);
            });
        expect_same(
            type(),
            [&](Context& ctx, Tensor y) {
                ops().linear_rows_forward(ctx, x, w, {}, residual, scratch, y);
            },
            [&](int64_t n, Tensor y) {
                ops().linear_add_forward(ctx(), x.view().row_range(n, 1), w, {},
                                         residual.view().row_range(n, 1),
                                         scratch.view().row_range(n, 1), y);
            });
        expect_same(
            DType::fp32, [&](Context& ctx, Tensor z) { ops().logits_forward(ctx, x, w, 3.0F, z); },
            [&](int64_t n, Tensor z) {
                ops().logits_forward(ctx(), x.view().row_range(n, 1), w, 3.0F, z);
            });
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, GenerationOfRows,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes), kNames);

using GenerationArguments = OperatorTest<>;

TEST_P(GenerationArguments, FitTogether) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 5, .heads = 2, .head_size = 4, .kv_heads = 1};
    const Uploaded q = poison(6, 8, DType::fp32), kv = poison(5, 8, DType::fp32);
    const Uploaded out = poison(6, 8, DType::fp32);
    EXPECT_THROW(ops().cached_attention_forward(ctx(), q, kv, {}, shape, out), UsageError);
    AttentionShape not_causal = shape;
    not_causal.causal = false;
    EXPECT_THROW(ops().cached_attention_forward(ctx(), kv, kv, {}, not_causal, kv), UsageError);
    const auto with = [&](int64_t rows, int64_t cols, DType of_sinks) {
        ops().cached_attention_forward(ctx(), kv, kv, poison(rows, cols, of_sinks), shape,
                                       poison(5, 8, DType::fp32));
    };
    EXPECT_THROW(with(1, 1, DType::fp32), UsageError);
    EXPECT_THROW(with(2, 2, DType::fp32), UsageError);
    EXPECT_THROW(with(1, 2, DType::bf16), UsageError);
    const Uploaded w = poison(3, 7, DType::fp32), z = poison(1, 3, DType::fp32);
    EXPECT_THROW(ops().logits_forward(ctx(), q, w, 0, z), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, GenerationArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

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
    reference::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                        shape, {}, whole, log_sum_exp, {});
    const auto bound = [](int64_t, int64_t) { return 1e-13; };
    reference::cached_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), {},
                                        shape, last);
    expect_close(last, whole, bound);
    const auto sinks = Matrix::random(1, shape.heads, DType::fp64, 2, -2.0, 4.0);
    reference::attention_sinks_forward(ctx, sinks, shape, whole, log_sum_exp);
    reference::cached_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                        sinks, shape, last);
    expect_close(last, whole, bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
