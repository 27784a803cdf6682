// SPDX-License-Identifier: Apache-2.0
// Causal attention of whole sequences, with q | k | v in the columns of one tensor.
#include "tests/conformance/attention_oracle.hpp"
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

const AttentionShape kSequences[] = {
    {.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1},
    {.sequences = 2, .seq_length = 3, .heads = 1, .head_size = 17, .kv_heads = 1},
    {.sequences = 1, .seq_length = 17, .heads = 3, .head_size = 8, .kv_heads = 3},
    {.sequences = 1, .seq_length = 9, .heads = 1, .head_size = 256, .kv_heads = 1},
    // whole blocks of queries and keys, and some more
    {.sequences = 3, .seq_length = 64, .heads = 2, .head_size = 16, .kv_heads = 2},
    {.sequences = 1, .seq_length = 128, .heads = 1, .head_size = 64, .kv_heads = 1},
    {.sequences = 2, .seq_length = 65, .heads = 2, .head_size = 64, .kv_heads = 2},
    {.sequences = 1, .seq_length = 129, .heads = 2, .head_size = 32, .kv_heads = 2},
    {.sequences = 1, .seq_length = 200, .heads = 1, .head_size = 5, .kv_heads = 1},
    // a group of 2, 3 and all of the heads per head of k and v
    {.sequences = 2, .seq_length = 65, .heads = 4, .head_size = 24, .kv_heads = 2},
    {.sequences = 1, .seq_length = 40, .heads = 6, .head_size = 7, .kv_heads = 2, .scale = 0.3F},
    {.sequences = 2, .seq_length = 12, .heads = 5, .head_size = 16, .kv_heads = 1},
    {.sequences = 2, .seq_length = 130, .heads = 5, .head_size = 16, .kv_heads = 1},
    // caps that saturate and that hardly bend
    {.sequences = 1, .seq_length = 70, .heads = 2, .head_size = 16, .kv_heads = 2, .softcap = 1},
    {.sequences = 1, .seq_length = 70, .heads = 1, .head_size = 16, .kv_heads = 1, .softcap = 50},
    {.sequences = 1, .seq_length = 131, .heads = 2, .head_size = 20, .kv_heads = 1, .softcap = 2},
    // windows of one key, within a block, of a block and its neighbours, of everything and more
    {.sequences = 2, .seq_length = 70, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 1},
    {.sequences = 1, .seq_length = 200, .heads = 2, .head_size = 8, .kv_heads = 2, .window = 17},
    {.sequences = 1, .seq_length = 200, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 64},
    {.sequences = 2, .seq_length = 200, .heads = 2, .head_size = 4, .kv_heads = 1, .window = 64},
    {.sequences = 1, .seq_length = 330, .heads = 1, .head_size = 4, .kv_heads = 1, .window = 100},
    {.sequences = 1, .seq_length = 300, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 130},
    {.sequences = 1, .seq_length = 70, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 70},
    {.sequences = 1, .seq_length = 3, .heads = 2, .head_size = 8, .kv_heads = 1, .window = 1000},
    // heads in several pieces, and of odd numbers of vectors; windows that begin within pairs of
    // keys
    {.sequences = 1, .seq_length = 193, .heads = 2, .head_size = 33, .kv_heads = 1},
    {.sequences = 1, .seq_length = 90, .heads = 2, .head_size = 80, .kv_heads = 1},
    {.sequences = 1, .seq_length = 70, .heads = 1, .head_size = 136, .kv_heads = 1, .window = 40},
    {.sequences = 1, .seq_length = 127, .heads = 3, .head_size = 48, .kv_heads = 3, .window = 64},
    {.sequences = 1, .seq_length = 150, .heads = 2, .head_size = 80, .kv_heads = 1, .window = 63},
    {.sequences = 1, .seq_length = 97, .heads = 2, .head_size = 96, .kv_heads = 2, .softcap = 5},
    {.sequences = 2, .seq_length = 131, .heads = 2, .head_size = 128, .kv_heads = 1, .window = 65},
    {.sequences = 1, .seq_length = 66, .heads = 1, .head_size = 256, .kv_heads = 1},
    // all of it
    {.sequences = 2,
     .seq_length = 50,
     .heads = 6,
     .head_size = 16,
     .kv_heads = 2,
     .scale = 0.25F,
     .softcap = 3,
     .window = 33},
    {.sequences = 2,
     .seq_length = 150,
     .heads = 6,
     .head_size = 20,
     .kv_heads = 2,
     .scale = 0.25F,
     .softcap = 3,
     .window = 33},
};

struct DocumentCase {
    AttentionShape shape;
    std::initializer_list<int64_t> beginnings;  ///< documents()
};

const DocumentCase kDocuments[] = {
    // of one token each; at the very end; none but the sequence's own
    {{.sequences = 1, .seq_length = 3, .heads = 1, .head_size = 4, .kv_heads = 1}, {1, 2}},
    {{.sequences = 2, .seq_length = 5, .heads = 2, .head_size = 17, .kv_heads = 1}, {4, 6, 9}},
    {{.sequences = 2, .seq_length = 70, .heads = 1, .head_size = 8, .kv_heads = 1}, {}},
    // at the edges of blocks and vectors of queries, and within them; other ones in each sequence
    {{.sequences = 1, .seq_length = 200, .heads = 2, .head_size = 16, .kv_heads = 2},
     {15, 16, 17, 63, 64, 65, 128}},
    {{.sequences = 2, .seq_length = 40, .heads = 6, .head_size = 8, .kv_heads = 2},
     {7, 8, 9, 40 + 31, 40 + 32}},
    {{.sequences = 3, .seq_length = 130, .heads = 4, .head_size = 24, .kv_heads = 2},
     {129, 130 + 64, 260 + 7, 260 + 100}},
    // a long one after short ones, and before
    {{.sequences = 2, .seq_length = 300, .heads = 2, .head_size = 64, .kv_heads = 1},
     {1, 2, 30, 300 + 270, 300 + 299}},
    {{.sequences = 1, .seq_length = 530, .heads = 1, .head_size = 4, .kv_heads = 1}, {300, 520}},
    // and a window that is shorter than some and longer than others; a cap
    {{.sequences = 1,
      .seq_length = 300,
      .heads = 2,
      .head_size = 5,
      .kv_heads = 1,
      .softcap = 2,
      .window = 70},
     {40, 90, 91, 280}},
    {{.sequences = 2, .seq_length = 150, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 1},
     {70}},
    {{.sequences = 1, .seq_length = 259, .heads = 2, .head_size = 96, .kv_heads = 1, .window = 129},
     {63, 131}},
};

class CausalAttention : public TypedOperatorTest {
protected:
    /// out, log_sum_exp and dqkv.
    [[nodiscard]] std::vector<Matrix> run(Context& ctx, const AttentionShape& shape,
                                          const Matrix& qkv, const Matrix& dout,
                                          const std::vector<int32_t>& first_visible = {}) const {
        // The reference adds up in the elements of gradients.
        const DType sums = parameter<0>().reference ? DType::fp64 : type();
        const int64_t n = shape.tokens(), h = shape.query_columns();
        const Uploaded in = up(qkv), gradient = up(dout), out = poison(n, h, type());
        const Uploaded log_sum_exp = poison(n, shape.heads, DType::fp32);
        const Uploaded dqkv = poison(n, shape.qkv_columns(), sums, 8);
        const auto mask = up(first_visible);
        const int64_t bytes = ops().attention_workspace_bytes(shape, type(), ctx.threads());
        const Workspace forward(device(), bytes), backward(device(), bytes);
        ops().causal_attention_forward(ctx, queries_of(in, shape), keys_values_of(in, shape), shape,
                                       mask, out, log_sum_exp, forward);
        ops().causal_attention_backward(
            ctx, gradient, queries_of(in, shape), keys_values_of(in, shape), out, log_sum_exp,
            shape, mask, queries_of(dqkv, shape), keys_values_of(dqkv, shape), backward);
        return {out.download(), log_sum_exp.download(), dqkv.download()};
    }
    /// The same of random numbers.
    [[nodiscard]] std::vector<Matrix> run(const AttentionShape& shape,
                                          const std::vector<int32_t>& first_visible = {}) const {
        return run(ctx(), shape,
                   Matrix::random(shape.tokens(), shape.qkv_columns(), type(), 1, -2.0, 2.0),
                   Matrix::random(shape.tokens(), shape.query_columns(), type(), 2), first_visible);
    }

    void expect_textbook(const AttentionShape& shape,
                         const std::vector<int32_t>& first_visible = {}) const {
        const int64_t n = shape.tokens(), h = shape.query_columns(), width = shape.qkv_columns();
        // Small shapes are enough for the reference, whose fp64 results have a test of their own.
        const int64_t products = n * shape.seq_length * h;
        if (products > (parameter<0>().reference ? 200000 : device().slow() ? 1350000 : products)) {
            return;
        }
        SCOPED_TRACE(testing::Message()
                     << shape.sequences << " sequences of " << shape.seq_length << ", "
                     << shape.heads << " heads of " << shape.head_size << ", " << shape.kv_heads
                     << " of k and v, softcap " << shape.softcap << ", window " << shape.window
                     << ", " << first_visible.size() << " of a mask");
        const Naive naive(Matrix::random(n, width, type(), 1, -2.0, 2.0),
                          Matrix::random(n, h, type(), 2), shape, type(), first_visible);
        for (const int64_t gap : {3, 8}) {
            SCOPED_TRACE(testing::Message() << "gap " << gap);
            const auto results =
                run(ctx(), shape, random_with_gap(n, width, type(), gap, 1, -2.0, 2.0),
                    random_with_gap(n, h, type(), gap, 2), first_visible);
            expect_close(results[0], naive.out, within(naive.out_bound));
            expect_close(results[1], naive.log_sum_exp, log_sum_exp_bound(naive, shape));
            expect_gradients(results[2], naive);
        }
    }
    static void expect_equal(const std::vector<Matrix>& found, const std::vector<Matrix>& expected,
                             const testing::Message& where) {
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(found[i].same_bits(expected[i])) << "result " << i << ", " << where;
        }
    }
};

TEST_P(CausalAttention, AgreesWithTheTextbookInBothDirections) {
    for (const AttentionShape& shape : kSequences) expect_textbook(shape);
}

TEST_P(CausalAttention, AgreesWithTheTextbookWithinDocuments) {
    for (const auto& [shape, beginnings] : kDocuments) {
        expect_textbook(shape, documents(shape, beginnings));
    }
}

TEST_P(CausalAttention, SurvivesScoresFarOutsideTheRangeOfExp) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 70, .heads = 1, .head_size = 16, .kv_heads = 1};
    const auto results = run(ctx(), shape, Matrix::random(70, 48, type(), 1, -100.0, 100.0),
                             Matrix::random(70, 16, type(), 2));
    for (int64_t row = 0; row < 70; ++row) {
        // a convex combination of values within +-100
        for (int64_t col = 0; col < 16; ++col) EXPECT_LE(std::abs(results[0].get(row, col)), 100.5);
        EXPECT_TRUE(std::isfinite(results[1].get(row, 0)));
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, CausalAttention,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

/// What all devices but the reference promise of bits, and of what they do not read. With heads of
/// 8 n columns and aligned rows a GPU may compute by cuDNN what has no mask, and the rest itself.
using CausalAttentionBits = CausalAttention;

TEST_P(CausalAttentionBits, AreTheSameForAnyThreads) {
    AttentionShape shape{
        .sequences = 2, .seq_length = 150, .heads = 6, .head_size = 40, .kv_heads = 6};
    const auto qkv_of = [&] { return Matrix::random(300, shape.qkv_columns(), type(), 1, -2, 2); };
    const auto dout = Matrix::random(300, shape.query_columns(), type(), 2);
    for (const int64_t kv_heads : {6, 3, 1}) {
        for (const int64_t window : {0, 50}) {
            SCOPED_TRACE(testing::Message() << kv_heads << ", window " << window);
            shape.kv_heads = kv_heads;
            shape.window = window;
            shape.softcap = window > 0 ? 2.0F : 0.0F;
            expect_same_bits_with_any_threads(
                [&](Context& ctx) { return run(ctx, shape, qkv_of(), dout); });
        }
    }
    shape.window = 0;
    shape.softcap = 0;
    shape.kv_heads = 2;
    const auto first_visible = documents(shape, {10, 70, 71, 150 + 140});
    expect_same_bits_with_any_threads(
        [&](Context& ctx) { return run(ctx, shape, qkv_of(), dout, first_visible); });
}

TEST_P(CausalAttentionBits, OfASequenceAreThoseThatItHasAlone) {
    for (const int64_t window : {0, 33}) {
        const AttentionShape both{.sequences = 2,
                                  .seq_length = 131,
                                  .heads = 4,
                                  .head_size = device().slow() ? 4 : 44,
                                  .kv_heads = 2,
                                  .window = window};
        AttentionShape one = both;
        one.sequences = 1;
        const auto qkv = Matrix::random(both.tokens(), both.qkv_columns(), type(), 1, -2.0, 2.0);
        const auto dout = Matrix::random(both.tokens(), both.query_columns(), type(), 2);
        const auto expected = run(ctx(), both, qkv, dout);
        for (const int64_t sequence : {0, 1}) {
            const auto rows = [&](const Matrix& of) {
                Matrix part(one.seq_length, of.cols(), of.type());
                for (int64_t row = 0; row < part.rows(); ++row) {
                    for (int64_t col = 0; col < part.cols(); ++col) {
                        part.set(row, col, of.get(sequence * one.seq_length + row, col));
                    }
                }
                return part;
            };
            expect_equal(run(ctx(), one, rows(qkv), rows(dout)),
                         {rows(expected[0]), rows(expected[1]), rows(expected[2])},
                         testing::Message() << "sequence " << sequence << ", window " << window);
        }
    }
}

TEST_P(CausalAttentionBits, WithAWindowOfAllKeysAreThoseOfNone) {
    AttentionShape shape{
        .sequences = 1, .seq_length = 150, .heads = 2, .head_size = 40, .kv_heads = 1};
    if (device().slow()) shape.head_size = 8;
    const auto expected = run(shape);
    for (const int64_t window : {150, 1000}) {
        shape.window = window;
        expect_equal(run(shape), expected, testing::Message() << "window " << window);
    }
}

TEST_P(CausalAttentionBits, OfSequencesOfOneDocumentAreThoseOfNoMask) {
    for (const int64_t window : {0, 33}) {
        const AttentionShape shape{.sequences = 2,
                                   .seq_length = 150,
                                   .heads = 2,
                                   .head_size = device().slow() ? 4 : 44,
                                   .kv_heads = 1,
                                   .window = window};
        expect_equal(run(shape, documents(shape, {})), run(shape),
                     testing::Message() << "window " << window);
    }
}

// Else the time of windows and of short documents would not be short.
TEST_P(CausalAttentionBits, DoNotDependOnBlocksOfKeysThatNoQueryOfABlockSees) {
    AttentionShape shape{
        .sequences = 1, .seq_length = 330, .heads = 1, .head_size = 4, .kv_heads = 1, .window = 20};
    constexpr int64_t kRead = 256,
                      kFirst = 320;  // multiples of 64; 320 - 19 is in the block of 256
    auto qkv = Matrix::random(330, 12, type(), 1);
    for (int64_t t = 0; t < kRead; ++t) {
        for (int64_t i = 0; i < 12; ++i) qkv.set(t, i, NAN);
    }
    const auto dout = Matrix::random(330, 4, type(), 2);
    const auto expect_finite = [&](const std::vector<int32_t>& mask) {
        const auto results = run(ctx(), shape, qkv, dout, mask);
        EXPECT_TRUE(std::isnan(results[0].get(0, 0)) && std::isnan(results[2].get(0, 0)));
        for (int64_t t = kFirst; t < 330; ++t) {
            for (const int64_t i : {0, 4, 8}) {  // of q, k and v
                EXPECT_TRUE(std::isfinite(results[2].get(t, i))) << t;
            }
            EXPECT_TRUE(std::isfinite(results[0].get(t, 0))) << t;
        }
    };
    expect_finite({});
    shape.window = 0;
    expect_finite(documents(shape, {kRead + 10}));
}

TEST_P(CausalAttentionBits, AreNotMadeOfHeadsThatCannotShareKeys) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 2, .heads = 3, .head_size = 4, .kv_heads = 2};
    EXPECT_THROW((void)run(shape), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, CausalAttentionBits,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
