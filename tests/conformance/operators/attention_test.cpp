// SPDX-License-Identifier: Apache-2.0
// Attention of the last queries of a sequence, and attention that is not causal, with q and kv in
// tensors of their own. Whole causal sequences are in causal_attention_test.cpp.
#include "tests/conformance/attention_oracle.hpp"
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct QueriesCase {
    AttentionShape shape;
    std::initializer_list<int64_t> beginnings;  ///< documents(); none: no mask
};

const QueriesCase kCases[] = {
    // one query; some; all
    {{.sequences = 1, .seq_length = 9, .heads = 1, .head_size = 4, .kv_heads = 1, .queries = 1},
     {}},
    {{.sequences = 2, .seq_length = 70, .heads = 2, .head_size = 8, .kv_heads = 2, .queries = 5},
     {}},
    {{.sequences = 2, .seq_length = 40, .heads = 2, .head_size = 8, .kv_heads = 2, .queries = 40},
     {}},
    // several blocks of queries that begin at a block of keys, and that do not
    {{.sequences = 2, .seq_length = 150, .heads = 4, .head_size = 24, .kv_heads = 2, .queries = 86},
     {}},
    {{.sequences = 1,
      .seq_length = 200,
      .heads = 3,
      .head_size = 17,
      .kv_heads = 1,
      .queries = 131},
     {}},
    // keys before all windows; windows within a block, and longer than the queries
    {{.sequences = 2,
      .seq_length = 200,
      .heads = 2,
      .head_size = 8,
      .kv_heads = 2,
      .window = 17,
      .queries = 70},
     {}},
    {{.sequences = 1,
      .seq_length = 150,
      .heads = 2,
      .head_size = 136,
      .kv_heads = 1,
      .window = 80,
      .queries = 30},
     {}},
    {{.sequences = 2,
      .seq_length = 9,
      .heads = 1,
      .head_size = 8,
      .kv_heads = 1,
      .window = 1,
      .queries = 3},
     {}},
    // all of it
    {{.sequences = 2,
      .seq_length = 150,
      .heads = 6,
      .head_size = 16,
      .kv_heads = 2,
      .scale = 0.25F,
      .softcap = 3,
      .window = 33,
      .queries = 50},
     {}},
    // documents before, at and after the first query, in one sequence or the other; with a window
    {{.sequences = 2, .seq_length = 130, .heads = 4, .head_size = 8, .kv_heads = 2, .queries = 66},
     {10, 64, 129, 130 + 64, 130 + 100}},
    {{.sequences = 1,
      .seq_length = 300,
      .heads = 2,
      .head_size = 5,
      .kv_heads = 1,
      .softcap = 2,
      .window = 70,
      .queries = 101},
     {40, 205, 280}},
};

/// Not causal: encoders, and queries of other sequences than the keys'.
const AttentionShape kNotCausal[] = {
    // one query of one key; of many keys; one key for many queries
    {.sequences = 2, .seq_length = 1, .heads = 2, .head_size = 8, .kv_heads = 1, .causal = false},
    {.sequences = 2,
     .seq_length = 130,
     .heads = 2,
     .head_size = 8,
     .kv_heads = 2,
     .queries = 1,
     .causal = false},
    {.sequences = 2,
     .seq_length = 1,
     .heads = 4,
     .head_size = 24,
     .kv_heads = 2,
     .queries = 130,
     .causal = false},
    // as many keys as queries: within a block, a block, and more
    {.sequences = 3, .seq_length = 37, .heads = 1, .head_size = 17, .kv_heads = 1, .causal = false},
    {.sequences = 1, .seq_length = 64, .heads = 2, .head_size = 64, .kv_heads = 1, .causal = false},
    {.sequences = 2, .seq_length = 100, .heads = 4, .head_size = 8, .kv_heads = 2, .causal = false},
    {.sequences = 1,
     .seq_length = 70,
     .heads = 1,
     .head_size = 136,
     .kv_heads = 1,
     .queries = 70,
     .causal = false},
    // fewer queries than keys, and more; blocks of queries that end within a vector
    {.sequences = 2,
     .seq_length = 130,
     .heads = 3,
     .head_size = 16,
     .kv_heads = 1,
     .queries = 37,
     .causal = false},
    {.sequences = 2,
     .seq_length = 37,
     .heads = 3,
     .head_size = 16,
     .kv_heads = 3,
     .queries = 130,
     .causal = false},
    {.sequences = 1,
     .seq_length = 64,
     .heads = 2,
     .head_size = 20,
     .kv_heads = 2,
     .queries = 193,
     .causal = false},
    {.sequences = 1,
     .seq_length = 130,
     .heads = 2,
     .head_size = 40,
     .kv_heads = 1,
     .queries = 64,
     .causal = false},
    // all of it
    {.sequences = 2,
     .seq_length = 100,
     .heads = 6,
     .head_size = 16,
     .kv_heads = 2,
     .scale = 0.25F,
     .softcap = 3,
     .queries = 67,
     .causal = false},
    {.sequences = 2,
     .seq_length = 67,
     .heads = 6,
     .head_size = 5,
     .kv_heads = 2,
     .softcap = 3,
     .queries = 129,
     .causal = false},
};

/// Values narrower and wider than keys, both within a tile of columns and beyond one.
const QueriesCase kValueSizes[] = {
    {{.sequences = 1,
      .seq_length = 9,
      .heads = 1,
      .head_size = 1,
      .kv_heads = 1,
      .value_head_size = 3},
     {}},
    {{.sequences = 2,
      .seq_length = 70,
      .heads = 2,
      .head_size = 24,
      .kv_heads = 2,
      .value_head_size = 16},
     {}},
    {{.sequences = 1,
      .seq_length = 100,
      .heads = 4,
      .head_size = 8,
      .kv_heads = 2,
      .value_head_size = 40,
      .queries = 36},
     {}},
    {{.sequences = 1,
      .seq_length = 70,
      .heads = 2,
      .head_size = 192,
      .kv_heads = 1,
      .value_head_size = 128},
     {}},
    {{.sequences = 1,
      .seq_length = 67,
      .heads = 3,
      .head_size = 17,
      .kv_heads = 1,
      .value_head_size = 150,
      .window = 20},
     {}},
    {{.sequences = 2,
      .seq_length = 130,
      .heads = 4,
      .head_size = 20,
      .kv_heads = 2,
      .value_head_size = 5,
      .scale = 0.25F,
      .softcap = 3,
      .window = 70,
      .queries = 66},
     {10, 64, 129, 130 + 64, 130 + 100}},
    {{.sequences = 2,
      .seq_length = 37,
      .heads = 2,
      .head_size = 16,
      .kv_heads = 1,
      .value_head_size = 72,
      .queries = 70,
      .causal = false},
     {}},
};

std::vector<int32_t> mask_of(const QueriesCase& one) {
    return one.beginnings.size() == 0 ? std::vector<int32_t>()
                                      : documents(one.shape, one.beginnings);
}

class Attention : public OperatorTest<DType> {
protected:
    [[nodiscard]] DType type() const { return parameter<1>(); }

    /// out, log_sum_exp, dq and dkv of tensors on the device.
    [[nodiscard]] std::vector<Matrix> run(Context& ctx, const AttentionShape& shape, ConstTensor q,
                                          ConstTensor kv, ConstTensor dout,
                                          const std::vector<int32_t>& first_visible) const {
        // The reference adds up in the elements of gradients.
        const DType sums = parameter<0>().reference ? DType::fp64 : type();
        const int64_t rows = shape.query_tokens();
        const Uploaded out = poison(rows, shape.output_columns(), type(), 1);
        const Uploaded dq = poison(rows, shape.query_columns(), sums, 5);
        const Uploaded log_sum_exp = poison(rows, shape.heads, DType::fp32);
        const Uploaded dkv = poison(shape.tokens(), shape.key_value_columns(), sums, 2);
        const auto mask = up(first_visible);
        const int64_t bytes = ops().attention_workspace_bytes(shape, type(), ctx.threads());
        const Workspace forward(device(), bytes), backward(device(), bytes);
        ops().causal_attention_forward(ctx, q, kv, shape, mask, out, log_sum_exp, forward);
        ops().causal_attention_backward(ctx, dout, q, kv, out, log_sum_exp, shape, mask, dq, dkv,
                                        backward);
        return {out.download(), log_sum_exp.download(), dq.download(), dkv.download()};
    }

    /// Both directions, with rows of several distances.
    void expect_textbook(const AttentionShape& shape,
                         const std::vector<int32_t>& first_visible) const {
        // Small shapes are enough for the reference, whose fp64 results have a test of their own.
        const int64_t products = shape.query_tokens() * shape.seq_length * shape.query_columns();
        if (parameter<0>().reference && products > 600000) return;
        for (const int64_t gap : {3, 8}) {
            SCOPED_TRACE(testing::Message()
                         << shape.queries << " queries, " << shape.seq_length << " tokens, "
                         << shape.heads << " heads of " << shape.head_size << ", values of "
                         << shape.value_size() << ", window " << shape.window << ", "
                         << first_visible.size() << " of a mask, gap " << gap);
            const int64_t rows = shape.query_tokens();
            const auto q = random_with_gap(rows, shape.query_columns(), type(), gap, 1, -2.0, 2.0);
            const auto kv = random_with_gap(shape.tokens(), shape.key_value_columns(), type(),
                                            2 * gap, 2, -2.0, 2.0);
            const auto dout = random_with_gap(rows, shape.output_columns(), type(), 3 * gap, 3);
            const Naive naive(q.view(), kv.view(), dout, shape, type(), first_visible);
            const auto results = run(ctx(), shape, up(q), up(kv), up(dout), first_visible);
            expect_close(results[0], naive.out, within(naive.out_bound));
            expect_close(results[1], naive.log_sum_exp, log_sum_exp_bound(naive, shape));
            expect_close(results[2], naive.dq, within(naive.dq_bound));
            expect_close(results[3], naive.dkv, within(naive.dkv_bound));
        }
    }

    void expect_same_bits(const AttentionShape& shape,
                          const std::vector<int32_t>& first_visible) const {
        const int64_t rows = shape.query_tokens();
        const Uploaded q = up(Matrix::random(rows, shape.query_columns(), type(), 1));
        const Uploaded kv =
            up(Matrix::random(shape.tokens(), shape.key_value_columns(), type(), 2));
        const Uploaded dout = up(Matrix::random(rows, shape.output_columns(), type(), 3));
        expect_same_bits_with_any_threads(
            [&](Context& ctx) { return run(ctx, shape, q, kv, dout, first_visible); });
    }
};

TEST_P(Attention, OfTheLastQueriesAgreesWithTheTextbookInBothDirections) {
    for (const QueriesCase& one : kCases) expect_textbook(one.shape, mask_of(one));
}

TEST_P(Attention, OfTheLastQueriesHasTheSameBitsWithAnyThreads) {
    for (const auto& [shape, beginnings] : kCases) {
        expect_same_bits(shape, documents(shape, beginnings));
    }
}

TEST_P(Attention, OfValuesOfAnotherSizeAgreesWithTheTextbookInBothDirections) {
    for (const QueriesCase& one : kValueSizes) expect_textbook(one.shape, mask_of(one));
}

TEST_P(Attention, OfValuesOfAnotherSizeHasTheSameBitsWithAnyThreads) {
    for (const QueriesCase& one : kValueSizes) expect_same_bits(one.shape, mask_of(one));
}

TEST_P(Attention, ThatIsNotCausalAgreesWithTheTextbookInBothDirections) {
    for (const AttentionShape& shape : kNotCausal) expect_textbook(shape, {});
}

TEST_P(Attention, ThatIsNotCausalHasTheSameBitsWithAnyThreads) {
    for (const AttentionShape& shape : kNotCausal) expect_same_bits(shape, {});
}

/// Scores so low that exp(-log_sum_exp) overflows: nothing may come from rows beyond the last key.
TEST_P(Attention, ThatIsNotCausalSeesNoKeyBeyondTheLast) {
    const AttentionShape shape{.sequences = 2,
                               .seq_length = 37,
                               .heads = 2,
                               .head_size = 8,
                               .kv_heads = 2,
                               .queries = 70,
                               .causal = false};
    const int64_t h = shape.query_columns();
    const auto negative = [](double value) { return -7 - value; };
    const auto positive = [](double value) { return 7 + value; };
    const auto q = Matrix::random(shape.query_tokens(), h, type(), 1).mapped(type(), negative);
    const auto kv = Matrix::random(shape.tokens(), 2 * h, type(), 2).mapped(type(), positive);
    const auto dout = Matrix::random(shape.query_tokens(), h, type(), 3);
    const Naive naive(q.view(), kv.view(), dout, shape, type());
    const auto results = run(ctx(), shape, up(q), up(kv), up(dout), {});
    ASSERT_LT(naive.log_sum_exp.get(0, 0), -100);
    expect_close(results[0], naive.out, within(naive.out_bound));
    expect_close(results[2], naive.dq, within(naive.dq_bound));
    expect_close(results[3], naive.dkv, within(naive.dkv_bound));
}

INSTANTIATE_TEST_SUITE_P(Devices, Attention,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

const QueriesCase kBitsCases[] = {
    {{.sequences = 1, .seq_length = 200, .heads = 4, .head_size = 16, .kv_heads = 2}, {}},
    {{.sequences = 1, .seq_length = 200, .heads = 2, .head_size = 20, .kv_heads = 2, .window = 50},
     {}},
    {{.sequences = 1,
      .seq_length = 192,
      .heads = 2,
      .head_size = 8,
      .kv_heads = 1,
      .softcap = 2,
      .window = 100},
     {37, 70, 150, 191}},
    {{.sequences = 1, .seq_length = 201, .heads = 2, .head_size = 8, .kv_heads = 1}, {1, 64, 130}},
    {{.sequences = 1,
      .seq_length = 130,
      .heads = 2,
      .head_size = 24,
      .kv_heads = 1,
      .value_head_size = 72},
     {}},
};

using AttentionBits = Attention;

TEST_P(AttentionBits, OfAQueryDoNotDependOnHowManyBlocksOfQueriesAreBeforeIt) {
    for (const auto& [shape, beginnings] : kBitsCases) {
        const int64_t s = shape.seq_length;
        const Uploaded q = up(Matrix::random(s, shape.query_columns(), type(), 1, -2.0, 2.0));
        const Uploaded kv = up(Matrix::random(s, shape.key_value_columns(), type(), 2, -2.0, 2.0));
        const Uploaded dout = up(Matrix::random(s, shape.output_columns(), type(), 3));
        // Always with a mask: without one, a GPU may compute all queries by cuDNN, and some itself.
        const auto all = run(ctx(), shape, q, kv, dout, documents(shape, beginnings));
        for (const int64_t first : {64, 128}) {
            AttentionShape last = shape;
            last.queries = s - first;
            const auto rows = [&](const Uploaded& of) {
                return of.view().row_range(first, last.queries);
            };
            const auto mask = documents(last, beginnings);
            for (Context* threads : device().threads()) {
                const auto some = run(*threads, last, rows(q), kv, rows(dout), mask);
                for (const size_t i : {0, 1, 2}) {  // out, log_sum_exp, dq
                    Matrix expected(last.queries, all[i].cols(), all[i].type());
                    for (int64_t row = 0; row < expected.rows(); ++row) {
                        for (int64_t col = 0; col < expected.cols(); ++col) {
                            expected.set(row, col, all[i].get(first + row, col));
                        }
                    }
                    EXPECT_TRUE(some[i].same_bits(expected))
                        << "result " << i << " of queries from " << first << " on, "
                        << threads->threads() << " threads";
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionBits,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes), kNames);

using AttentionArguments = OperatorTest<>;

TEST_P(AttentionArguments, FitTogether) {
    const AttentionShape shape{
        .sequences = 2, .seq_length = 5, .heads = 4, .head_size = 2, .kv_heads = 2, .queries = 3};
    const DType type = DType::fp32;
    const Uploaded q = poison(6, 8, type), kv = poison(10, 8, type), sums = poison(6, 4, type);
    const Workspace workspace(device(), int64_t{1} << 20);
    const auto forward = [&](const AttentionShape& of, const Uploaded& q_, const Uploaded& kv_,
                             const Uploaded& out, const Uploaded& log_sum_exp,
                             const std::vector<int32_t>& mask = {}) {
        const auto first_visible = up(mask);
        ops().causal_attention_forward(ctx(), q_, kv_, of, first_visible, out, log_sum_exp,
                                       workspace);
    };
    const Uploaded tokens = poison(10, 8, type), narrow = poison(10, 4, type);
    EXPECT_THROW(forward(shape, tokens, kv, q, sums), UsageError);
    EXPECT_THROW(forward(shape, q, q, q, sums), UsageError);
    EXPECT_THROW(forward(shape, q, narrow, q, sums), UsageError);
    EXPECT_THROW(forward(shape, q, kv, tokens, sums), UsageError);
    EXPECT_THROW(forward(shape, q, kv, q, poison(10, 4, type)), UsageError);
    EXPECT_THROW(forward(shape, q, kv, q, sums, std::vector<int32_t>(10)), UsageError);
    for (const int64_t queries : {-1, 0, 2, 6}) {
        AttentionShape other = shape;
        other.queries = queries;
        EXPECT_THROW(forward(other, q, kv, q, sums), UsageError) << queries;
    }
    for (const auto& change : {+[](AttentionShape& of) { of.window = 2; },
                               +[](AttentionShape& of) { of.seq_length = 0; },
                               +[](AttentionShape& of) { of.queries = -3; }}) {
        AttentionShape other = shape;
        other.causal = false;
        change(other);
        EXPECT_THROW(forward(other, q, poison(other.tokens(), 8, type), q, sums), UsageError);
    }
    AttentionShape not_causal = shape;
    not_causal.causal = false;
    EXPECT_THROW(forward(not_causal, q, kv, q, sums, std::vector<int32_t>(6)), UsageError);
    AttentionShape narrow_values = shape;
    narrow_values.value_head_size = 1;
    const Uploaded k_and_v = poison(10, 6, type), heads = poison(6, 4, type);
    EXPECT_THROW(forward(narrow_values, q, kv, heads, sums), UsageError);
    EXPECT_THROW(forward(narrow_values, q, k_and_v, q, sums), UsageError);
    narrow_values.value_head_size = -1;
    EXPECT_THROW(forward(narrow_values, q, kv, q, sums), UsageError);
    const auto backward = [&](const Uploaded& dout, const Uploaded& dq, const Uploaded& dkv) {
        ops().causal_attention_backward(ctx(), dout, q, kv, q, sums, shape, {}, dq, dkv, workspace);
    };
    EXPECT_THROW(backward(tokens, q, kv), UsageError);
    EXPECT_THROW(backward(q, tokens, kv), UsageError);
    EXPECT_THROW(backward(q, q, q), UsageError);
    EXPECT_THROW(backward(q, q, narrow), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
