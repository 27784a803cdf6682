// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "kernels/reference/operators.hpp"
#include "tests/conformance/attention_oracle.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

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
    // a group of 2, 3 and all of the heads per head of k and v
    {.sequences = 2, .seq_length = 65, .heads = 4, .head_size = 24, .kv_heads = 2},
    {.sequences = 1, .seq_length = 40, .heads = 6, .head_size = 7, .kv_heads = 2, .scale = 0.3F},
    {.sequences = 2, .seq_length = 130, .heads = 5, .head_size = 16, .kv_heads = 1},
    // caps that saturate and that hardly bend
    {.sequences = 1, .seq_length = 70, .heads = 2, .head_size = 16, .kv_heads = 2, .softcap = 1},
    {.sequences = 1, .seq_length = 70, .heads = 1, .head_size = 16, .kv_heads = 1, .softcap = 50},
    // windows of one key, within a block, of a block and its neighbours, of everything and more
    {.sequences = 2, .seq_length = 70, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 1},
    {.sequences = 1, .seq_length = 200, .heads = 2, .head_size = 8, .kv_heads = 2, .window = 17},
    {.sequences = 1, .seq_length = 200, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 64},
    {.sequences = 1, .seq_length = 300, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 130},
    {.sequences = 1, .seq_length = 70, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 70},
    {.sequences = 1, .seq_length = 3, .heads = 2, .head_size = 8, .kv_heads = 1, .window = 1000},
    // heads of several and of odd numbers of vectors; windows that begin within pairs of keys
    {.sequences = 1, .seq_length = 193, .heads = 2, .head_size = 33, .kv_heads = 1},
    {.sequences = 1, .seq_length = 127, .heads = 3, .head_size = 48, .kv_heads = 3, .window = 64},
    {.sequences = 1, .seq_length = 150, .heads = 2, .head_size = 80, .kv_heads = 1, .window = 63},
    {.sequences = 1, .seq_length = 97, .heads = 2, .head_size = 96, .kv_heads = 2, .softcap = 5},
    {.sequences = 2, .seq_length = 131, .heads = 2, .head_size = 128, .kv_heads = 1, .window = 65},
    {.sequences = 1, .seq_length = 66, .heads = 1, .head_size = 256, .kv_heads = 1},
    // all of it
    {.sequences = 2,
     .seq_length = 150,
     .heads = 6,
     .head_size = 20,
     .kv_heads = 2,
     .scale = 0.25F,
     .softcap = 3,
     .window = 33},
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

/// out, log_sum_exp and dqkv.
std::vector<Matrix> run_on_host(const AttentionShape& shape, const Matrix& qkv, const Matrix& dout,
                                int threads, std::span<const int32_t> first_visible = {}) {
    const DType type = qkv.type();
    const int64_t n = shape.tokens(), h = shape.query_columns(), width = shape.qkv_columns();
    Context ctx({.threads = threads, .poll = {}});
    Matrix out(n, h, type), log_sum_exp(n, shape.heads, DType::fp32), dqkv(n, width, type);
    Workspace workspace(host::attention_workspace_bytes(shape, type, threads));
    host::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), shape,
                                   first_visible, out, log_sum_exp, workspace.span());
    host::causal_attention_backward(ctx, dout, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                    out, log_sum_exp, shape, first_visible, queries_of(dqkv, shape),
                                    keys_values_of(dqkv, shape), workspace.span());
    return {out, log_sum_exp, dqkv};
}
std::vector<Matrix> run_on_host(const AttentionShape& shape, DType type, int threads,
                                std::span<const int32_t> first_visible = {}) {
    return run_on_host(
        shape, Matrix::random(shape.tokens(), shape.qkv_columns(), type, 1, -2.0, 2.0),
        Matrix::random(shape.tokens(), shape.query_columns(), type, 2), threads, first_visible);
}

class AttentionOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(AttentionOfType, AgreesWithTheTextbookInBothDirections) {
    const DType type = GetParam();
    for (const auto& shape : kShapes) {
        SCOPED_TRACE(testing::Message()
                     << shape.sequences << " sequences of " << shape.seq_length << ", "
                     << shape.heads << " heads of " << shape.head_size << ", " << shape.kv_heads
                     << " of k and v, softcap " << shape.softcap << ", window " << shape.window);
        const int64_t n = shape.tokens(), h = shape.query_columns(), width = shape.qkv_columns();
        const auto qkv = Matrix::random(n, width, type, 1, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, type, 2);
        const Naive naive(qkv, dout, shape, type);
        const auto results = run_on_host(shape, qkv, dout, 1);
        const Matrix &out = results[0], &log_sum_exp = results[1], &dqkv = results[2];
        expect_close(out, naive.out, within(naive.out_bound));
        expect_close(log_sum_exp, naive.log_sum_exp, log_sum_exp_bound(naive, shape));
        expect_gradients(dqkv, naive);
    }
}

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
    {{.sequences = 3, .seq_length = 130, .heads = 4, .head_size = 24, .kv_heads = 2},
     {129, 130 + 64, 260 + 7, 260 + 100}},
    // a long one after short ones, and before
    {{.sequences = 2, .seq_length = 300, .heads = 2, .head_size = 64, .kv_heads = 1},
     {1, 2, 30, 300 + 270, 300 + 299}},
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

TEST_P(AttentionOfType, AgreesWithTheTextbookWithinDocuments) {
    const DType type = GetParam();
    for (const auto& [shape, beginnings] : kDocuments) {
        SCOPED_TRACE(testing::Message()
                     << shape.sequences << " sequences of " << shape.seq_length << ", "
                     << beginnings.size() << " beginnings, window " << shape.window);
        const int64_t n = shape.tokens(), h = shape.query_columns(), width = shape.qkv_columns();
        const auto first_visible = documents(shape, beginnings);
        const auto qkv = Matrix::random(n, width, type, 1, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, type, 2);
        const Naive naive(qkv, dout, shape, type, first_visible);
        const auto results = run_on_host(shape, qkv, dout, 1, first_visible);
        const Matrix &out = results[0], &log_sum_exp = results[1], &dqkv = results[2];
        expect_close(out, naive.out, within(naive.out_bound));
        expect_close(log_sum_exp, naive.log_sum_exp, log_sum_exp_bound(naive, shape));
        expect_gradients(dqkv, naive);
    }
}

TEST_P(AttentionOfType, BitsAreTheSameForAnyNumberOfThreads) {
    AttentionShape shape{
        .sequences = 2, .seq_length = 150, .heads = 6, .head_size = 40, .kv_heads = 6};
    for (const int64_t kv_heads : {6, 3, 1}) {
        for (const int64_t window : {0, 50}) {
            shape.kv_heads = kv_heads;
            shape.window = window;
            shape.softcap = window > 0 ? 2.0F : 0.0F;
            const auto one = run_on_host(shape, GetParam(), 1);
            for (const int threads : {2, 3}) {
                const auto more = run_on_host(shape, GetParam(), threads);
                for (size_t i = 0; i < one.size(); ++i) {
                    EXPECT_TRUE(one[i].same_bits(more[i])) << i << ", " << kv_heads;
                }
            }
        }
    }
}

TEST_P(AttentionOfType, ASequenceHasTheBitsThatItHasAlone) {
    const DType type = GetParam();
    for (const int64_t window : {0, 33}) {
        const AttentionShape both{.sequences = 2,
                                  .seq_length = 131,
                                  .heads = 4,
                                  .head_size = 40,
                                  .kv_heads = 2,
                                  .window = window};
        AttentionShape one = both;
        one.sequences = 1;
        const auto qkv = Matrix::random(both.tokens(), both.qkv_columns(), type, 1, -2.0, 2.0);
        const auto dout = Matrix::random(both.tokens(), both.query_columns(), type, 2);
        const auto expected = run_on_host(both, qkv, dout, 1);
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
            const auto alone = run_on_host(one, rows(qkv), rows(dout), 1);
            for (size_t i = 0; i < alone.size(); ++i) {
                EXPECT_TRUE(alone[i].same_bits(rows(expected[i]))) << i << ", " << sequence;
            }
        }
    }
}

TEST_P(AttentionOfType, AWindowOfAllKeysGivesTheBitsOfNone) {
    AttentionShape shape{
        .sequences = 1, .seq_length = 150, .heads = 2, .head_size = 40, .kv_heads = 1};
    const auto expected = run_on_host(shape, GetParam(), 1);
    for (const int64_t window : {150, 1000}) {
        shape.window = window;
        const auto actual = run_on_host(shape, GetParam(), 1);
        for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(actual[i].same_bits(expected[i])) << i;
    }
}

TEST_P(AttentionOfType, BitsWithinDocumentsAreTheSameForAnyNumberOfThreads) {
    const AttentionShape shape{
        .sequences = 2, .seq_length = 150, .heads = 6, .head_size = 40, .kv_heads = 2};
    const auto first_visible = documents(shape, {10, 70, 71, 150 + 140});
    const auto one = run_on_host(shape, GetParam(), 1, first_visible);
    const auto three = run_on_host(shape, GetParam(), 3, first_visible);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(one[i].same_bits(three[i])) << i;
}

TEST_P(AttentionOfType, SequencesOfOneDocumentGiveTheBitsOfNoMask) {
    for (const int64_t window : {0, 33}) {
        const AttentionShape shape{.sequences = 2,
                                   .seq_length = 150,
                                   .heads = 2,
                                   .head_size = 40,
                                   .kv_heads = 1,
                                   .window = window};
        const auto expected = run_on_host(shape, GetParam(), 1);
        const auto actual = run_on_host(shape, GetParam(), 1, documents(shape, {}));
        for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(actual[i].same_bits(expected[i])) << i;
    }
}

// Else the time of short documents would not be short.
TEST_P(AttentionOfType, NeverReadsBlocksOfKeysOfEarlierDocuments) {
    const DType type = GetParam();
    const AttentionShape shape{
        .sequences = 1, .seq_length = 256, .heads = 1, .head_size = 8, .kv_heads = 1};
    const auto first_visible = documents(shape, {70});
    auto qkv = Matrix::random(256, 24, type, 1);
    for (int64_t t = 0; t < 64; ++t) {
        for (int64_t i = 0; i < 24; ++i) qkv.set(t, i, NAN);
    }
    const auto dout = Matrix::random(256, 8, type, 2);
    const auto results = run_on_host(shape, qkv, dout, 1, first_visible);
    const Matrix &out = results[0], &dqkv = results[2];
    for (int64_t t = 128; t < 256; ++t) {
        EXPECT_TRUE(std::isfinite(out.get(t, 0)) && std::isfinite(dqkv.get(t, 0))) << t;
    }
}

TEST_P(AttentionOfType, NeverReadsKeysThatNoQueryOfABlockSees) {
    const DType type = GetParam();
    const AttentionShape shape{
        .sequences = 1, .seq_length = 200, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 20};
    auto qkv = Matrix::random(200, 24, type, 1);
    for (int64_t t = 0; t < 40; ++t) {
        for (int64_t i = 0; i < 24; ++i) qkv.set(t, i, NAN);
    }
    const auto dout = Matrix::random(200, 8, type, 2);
    const auto results = run_on_host(shape, qkv, dout, 1);
    const Matrix &out = results[0], &dqkv = results[2];
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

TEST_P(AttentionOfType, SurvivesScoresFarOutsideTheRangeOfExp) {
    const DType type = GetParam();
    const AttentionShape shape{
        .sequences = 1, .seq_length = 70, .heads = 1, .head_size = 16, .kv_heads = 1};
    const auto qkv = Matrix::random(70, 48, type, 1, -100.0, 100.0);
    Matrix out(70, 16, type), log_sum_exp(70, 1, DType::fp32);
    Workspace workspace(host::attention_workspace_bytes(shape, type, 1));
    host::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), shape,
                                   {}, out, log_sum_exp, workspace.span());
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
    host::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), shape,
                                   {}, out, log_sum_exp, workspace.span());
    EXPECT_EQ(polls, 6);
}

TEST(Attention, RefusesHeadsThatCannotShareKeys) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape shape{
        .sequences = 1, .seq_length = 2, .heads = 3, .head_size = 4, .kv_heads = 2};
    const auto qkv = Matrix::random(2, shape.qkv_columns(), DType::fp32, 1);
    Matrix out(2, 12, DType::fp32), log_sum_exp(2, 3, DType::fp32);
    Workspace workspace(host::attention_workspace_bytes(shape, DType::fp32, 1));
    EXPECT_THROW(
        host::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                       shape, {}, out, log_sum_exp, workspace.span()),
        UsageError);
}

/// Plain, and with grouped queries, a scale, a cap and a window.
const AttentionShape kSmallShapes[] = {
    {.sequences = 2, .seq_length = 5, .heads = 2, .head_size = 3, .kv_heads = 2},
    {.sequences = 2,
     .seq_length = 5,
     .heads = 4,
     .head_size = 3,
     .kv_heads = 2,
     .scale = 0.7F,
     .softcap = 1.5F,
     .window = 3},
};

struct SmallCase {
    AttentionShape shape;
    std::vector<int32_t> first_visible;
};

/// Both without a mask and with documents of one to three tokens.
std::vector<SmallCase> small_cases() {
    std::vector<SmallCase> cases;
    for (const AttentionShape& shape : kSmallShapes) {
        cases.push_back({shape, {}});
        cases.push_back({shape, documents(shape, {2, 3, 9})});
    }
    return cases;
}

TEST(ReferenceAttention, IsTheTextbooksInBothDirections) {
    Context ctx({.threads = 1, .poll = {}});
    for (const auto& [shape, first_visible] : small_cases()) {
        const int64_t n = shape.tokens(), h = shape.query_columns(), width = shape.qkv_columns();
        const auto qkv = Matrix::random(n, width, DType::fp64, 1, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, DType::fp64, 2);
        const Naive naive(qkv, dout, shape, DType::fp64, first_visible);
        Matrix out(n, h, DType::fp64), log_sum_exp(n, shape.heads, DType::fp64);
        Matrix dqkv(n, width, DType::fp64);
        reference::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                            shape, first_visible, out, log_sum_exp, {});
        reference::causal_attention_backward(
            ctx, dout, queries_of(qkv, shape), keys_values_of(qkv, shape), out, log_sum_exp, shape,
            first_visible, queries_of(dqkv, shape), keys_values_of(dqkv, shape), {});
        const auto bound = [](int64_t, int64_t) { return 1e-12; };
        expect_close(out, naive.out, bound);
        expect_close(log_sum_exp, naive.log_sum_exp, bound);
        expect_gradients(dqkv, naive, bound);
    }
}

TEST(ReferenceAttention, PartsOfTheQueriesHaveTheRowsOfAllAndAddUpToTheGradientsOfKeys) {
    Context ctx({.threads = 1, .poll = {}});
    const auto bound = [](int64_t, int64_t) { return 1e-12; };
    for (const auto& [shape, first_visible] : small_cases()) {
        const int64_t n = shape.tokens(), h = shape.query_columns(),
                      kv_columns = shape.key_value_columns();
        const auto q = Matrix::random(n, h, DType::fp64, 1, -2.0, 2.0);
        const auto kv = Matrix::random(n, kv_columns, DType::fp64, 2, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, DType::fp64, 3);
        const auto zeros = [&] {
            return Matrix(n, kv_columns, DType::fp64).mapped(DType::fp64, [](double) {
                return 0.0;
            });
        };
        Matrix out(n, h, DType::fp64), log_sum_exp(n, shape.heads, DType::fp64),
            dq(n, h, DType::fp64);
        Matrix dkv = zeros(), sums = zeros();
        reference::causal_attention_forward(ctx, q, kv, shape, first_visible, out, log_sum_exp, {});
        reference::causal_attention_backward(ctx, dout, q, kv, out, log_sum_exp, shape,
                                             first_visible, dq, dkv, {});
        Matrix part_out(n, h, DType::fp64), part_sums(n, shape.heads, DType::fp64),
            part_dq(n, h, DType::fp64);
        for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
            const int64_t token = sequence * shape.seq_length;
            for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 4}, {4, 5}}) {
                AttentionShape part = shape;
                part.sequences = 1;
                part.seq_length = end;
                part.queries = end - begin;
                const int64_t first = token + begin, count = end - begin;
                const auto rows = [&](auto& of) { return of.view().row_range(first, count); };
                const auto visible =
                    first_visible.empty()
                        ? std::span<const int32_t>()
                        : std::span(first_visible)
                              .subspan(static_cast<size_t>(first), static_cast<size_t>(count));
                const ConstTensor keys = kv.view().row_range(token, end);
                Matrix part_dkv(end, kv_columns, DType::fp64);
                reference::causal_attention_forward(ctx, rows(q), keys, part, visible,
                                                    rows(part_out), rows(part_sums), {});
                reference::causal_attention_backward(ctx, rows(dout), rows(q), keys, rows(part_out),
                                                     rows(part_sums), part, visible, rows(part_dq),
                                                     part_dkv, {});
                for (int64_t t = 0; t < end; ++t) {
                    for (int64_t i = 0; i < kv_columns; ++i) {
                        sums.set(token + t, i, sums.get(token + t, i) + part_dkv.get(t, i));
                    }
                }
            }
        }
        expect_close(part_out, out, bound);
        expect_close(part_sums, log_sum_exp, bound);
        expect_close(part_dq, dq, bound);
        expect_close(sums, dkv, bound);
    }
}

TEST(ReferenceAttention, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const auto& [shape, first_visible] : small_cases()) {
        const int64_t n = shape.tokens(), h = shape.query_columns(), width = shape.qkv_columns();
        auto qkv = Matrix::random(n, width, DType::fp64, 1, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, DType::fp64, 2);
        Matrix out(n, h, DType::fp64), log_sum_exp(n, shape.heads, DType::fp64);
        const auto loss = [&, shape = shape, &first_visible = first_visible] {
            reference::causal_attention_forward(ctx, queries_of(qkv, shape),
                                                keys_values_of(qkv, shape), shape, first_visible,
                                                out, log_sum_exp, {});
            return dot(out, dout);
        };
        loss();
        Matrix dqkv(n, width, DType::fp64);
        reference::causal_attention_backward(
            ctx, dout, queries_of(qkv, shape), keys_values_of(qkv, shape), out, log_sum_exp, shape,
            first_visible, queries_of(dqkv, shape), keys_values_of(dqkv, shape), {});
        expect_close(dqkv, numeric_gradient(qkv, loss),
                     [](int64_t, int64_t) { return kDifferenceBound; });
    }
}

/// As many queries as keys, fewer, and more.
const AttentionShape kSmallNotCausal[] = {
    {.sequences = 2, .seq_length = 5, .heads = 2, .head_size = 3, .kv_heads = 2, .causal = false},
    {.sequences = 2,
     .seq_length = 5,
     .heads = 4,
     .head_size = 3,
     .kv_heads = 2,
     .scale = 0.7F,
     .softcap = 1.5F,
     .queries = 2,
     .causal = false},
    {.sequences = 2,
     .seq_length = 3,
     .heads = 2,
     .head_size = 4,
     .kv_heads = 1,
     .queries = 7,
     .causal = false},
};

TEST(ReferenceAttention, ThatIsNotCausalIsTheTextbooksWithTheGradientOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const AttentionShape& shape : kSmallNotCausal) {
        const int64_t rows = shape.query_tokens(), h = shape.query_columns();
        const int64_t n = shape.tokens(), kv_columns = shape.key_value_columns();
        auto q = Matrix::random(rows, h, DType::fp64, 1, -2.0, 2.0);
        auto kv = Matrix::random(n, kv_columns, DType::fp64, 2, -2.0, 2.0);
        const auto dout = Matrix::random(rows, h, DType::fp64, 3);
        const Naive naive(q.view(), kv.view(), dout, shape, DType::fp64);
        Matrix out(rows, h, DType::fp64), log_sum_exp(rows, shape.heads, DType::fp64);
        Matrix dq(rows, h, DType::fp64), dkv(n, kv_columns, DType::fp64);
        const auto loss = [&, shape = shape] {
            reference::causal_attention_forward(ctx, q, kv, shape, {}, out, log_sum_exp, {});
            return dot(out, dout);
        };
        loss();
        reference::causal_attention_backward(ctx, dout, q, kv, out, log_sum_exp, shape, {}, dq, dkv,
                                             {});
        const auto bound = [](int64_t, int64_t) { return 1e-12; };
        expect_close(out, naive.out, bound);
        expect_close(log_sum_exp, naive.log_sum_exp, bound);
        expect_close(dq, naive.dq, bound);
        expect_close(dkv, naive.dkv, bound);
        const auto difference_bound = [](int64_t, int64_t) { return kDifferenceBound; };
        expect_close(dq, numeric_gradient(q, loss), difference_bound);
        expect_close(dkv, numeric_gradient(kv, loss), difference_bound);
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
