// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include <vector>

#include "kernels/cuda/attention_statistics.hpp"
#include "tests/conformance/attention_oracle.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

const AttentionShape kShapes[] = {
    {.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1},
    {.sequences = 2, .seq_length = 3, .heads = 1, .head_size = 17, .kv_heads = 1},
    {.sequences = 1, .seq_length = 17, .heads = 3, .head_size = 8, .kv_heads = 3},
    {.sequences = 3, .seq_length = 40, .heads = 2, .head_size = 16, .kv_heads = 2},
    {.sequences = 1, .seq_length = 65, .heads = 2, .head_size = 5, .kv_heads = 2},
    {.sequences = 1, .seq_length = 9, .heads = 1, .head_size = 256, .kv_heads = 1},
    // 2, 3 and all of the query heads share a key
    {.sequences = 2, .seq_length = 33, .heads = 4, .head_size = 8, .kv_heads = 2},
    {.sequences = 1, .seq_length = 20, .heads = 6, .head_size = 7, .kv_heads = 2, .scale = 0.3F},
    {.sequences = 2, .seq_length = 12, .heads = 5, .head_size = 16, .kv_heads = 1},
    // caps that saturate and that hardly bend
    {.sequences = 1, .seq_length = 40, .heads = 2, .head_size = 16, .kv_heads = 2, .softcap = 1},
    {.sequences = 1, .seq_length = 40, .heads = 1, .head_size = 16, .kv_heads = 1, .softcap = 50},
    // windows of one key, of some, of all and of more
    {.sequences = 2, .seq_length = 30, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 1},
    {.sequences = 1, .seq_length = 80, .heads = 2, .head_size = 8, .kv_heads = 2, .window = 17},
    {.sequences = 1, .seq_length = 30, .heads = 1, .head_size = 8, .kv_heads = 1, .window = 30},
    {.sequences = 1, .seq_length = 3, .heads = 2, .head_size = 8, .kv_heads = 1, .window = 1000},
    // all of it
    {.sequences = 2,
     .seq_length = 50,
     .heads = 6,
     .head_size = 16,
     .kv_heads = 2,
     .scale = 0.25F,
     .softcap = 3,
     .window = 33},
};

int64_t scratch_bytes(AttentionShape shape) {
    return cuda::attention_workspace_bytes(shape, DType::bf16, 1);
}

struct Results {
    Matrix out, log_sum_exp, dqkv;
};

/// Forward and backward of the given matrices in a workspace of `bytes`.
Results run(const Device& device, Context& ctx, AttentionShape shape, const Matrix& qkv,
            const Matrix& dout, int64_t bytes, const std::vector<int32_t>& first_visible = {}) {
    const DType type = qkv.type();
    const DeviceMatrix dqkv_in(device, qkv), ddout(device, dout);
    const DeviceMatrix out(device, Matrix(shape.tokens(), shape.query_columns(), type));
    const DeviceMatrix lse(device, Matrix(shape.tokens(), shape.heads, DType::fp32));
    const DeviceMatrix dqkv(device, Matrix(shape.tokens(), shape.qkv_columns(), type, 8));
    const DeviceArray<int32_t> mask(device, first_visible);
    const DeviceBytes forward_workspace(static_cast<size_t>(bytes));
    cuda::causal_attention_forward(ctx, queries_of(dqkv_in, shape), keys_values_of(dqkv_in, shape),
                                   shape, mask, out, lse, forward_workspace);
    const DeviceBytes backward_workspace(static_cast<size_t>(bytes));
    cuda::causal_attention_backward(
        ctx, ddout, queries_of(dqkv_in, shape), keys_values_of(dqkv_in, shape), out, lse, shape,
        mask, queries_of(dqkv, shape), keys_values_of(dqkv, shape), backward_workspace);
    return {out.download(), lse.download(), dqkv.download()};
}

class CudaAttention : public OnDeviceWithParam<DType> {};

void expect_textbook(const Results& results, const Matrix& qkv, const Matrix& dout,
                     AttentionShape shape, const std::vector<int32_t>& first_visible = {}) {
    const Naive naive(qkv, dout, shape, qkv.type(), first_visible);
    expect_close(results.out, naive.out, within(naive.out_bound));
    expect_close(results.log_sum_exp, naive.log_sum_exp, log_sum_exp_bound(naive, shape));
    expect_gradients(results.dqkv, naive);
}

TEST_P(CudaAttention, AgreesWithTheTextbookInBothDirections) {
    Device device;
    for (const auto& shape : kShapes) {
        for (const int64_t gap : {3, 8}) {
            SCOPED_TRACE(testing::Message()
                         << shape.sequences << " sequences of " << shape.seq_length << ", "
                         << shape.heads << " heads of " << shape.head_size << ", " << shape.kv_heads
                         << " of k and v, softcap " << shape.softcap << ", window " << shape.window
                         << ", gap " << gap);
            const auto qkv =
                random_with_gap(shape.tokens(), shape.qkv_columns(), GetParam(), gap, 1, -2.0, 2.0);
            const auto dout =
                random_with_gap(shape.tokens(), shape.query_columns(), GetParam(), gap, 2);
            expect_textbook(run(device, device.context(), shape, qkv, dout, scratch_bytes(shape)),
                            qkv, dout, shape);
        }
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
    {{.sequences = 2, .seq_length = 30, .heads = 1, .head_size = 8, .kv_heads = 1}, {}},
    // within a vector of scores and at its edges; other ones in each sequence
    {{.sequences = 2, .seq_length = 40, .heads = 6, .head_size = 8, .kv_heads = 2},
     {7, 8, 9, 40 + 31, 40 + 32}},
    // more blocks of queries than one
    {{.sequences = 1, .seq_length = 530, .heads = 2, .head_size = 4, .kv_heads = 1}, {300, 520}},
    // and a window that is shorter than some and longer than others; a cap
    {{.sequences = 1,
      .seq_length = 530,
      .heads = 1,
      .head_size = 4,
      .kv_heads = 1,
      .softcap = 2,
      .window = 20},
     {9, 100, 500, 515}},
};

TEST_P(CudaAttention, AgreesWithTheTextbookWithinDocuments) {
    Device device;
    for (const auto& [shape, beginnings] : kDocuments) {
        SCOPED_TRACE(testing::Message() << shape.sequences << " sequences of " << shape.seq_length
                                        << ", window " << shape.window);
        const auto first_visible = documents(shape, beginnings);
        const auto qkv =
            Matrix::random(shape.tokens(), shape.qkv_columns(), GetParam(), 1, -2.0, 2.0);
        const auto dout = Matrix::random(shape.tokens(), shape.query_columns(), GetParam(), 2);
        expect_textbook(
            run(device, device.context(), shape, qkv, dout, scratch_bytes(shape), first_visible),
            qkv, dout, shape, first_visible);
    }
}

TEST_P(CudaAttention, SequencesOfOneDocumentGiveTheBitsOfNoMask) {
    const AttentionShape shape{
        .sequences = 2, .seq_length = 40, .heads = 2, .head_size = 8, .kv_heads = 1, .window = 30};
    Device device;
    const auto qkv = Matrix::random(80, shape.qkv_columns(), GetParam(), 1, -2.0, 2.0);
    const auto dout = Matrix::random(80, 16, GetParam(), 2);
    const Results none = run(device, device.context(), shape, qkv, dout, scratch_bytes(shape));
    const Results one =
        run(device, device.context(), shape, qkv, dout, scratch_bytes(shape), documents(shape, {}));
    EXPECT_TRUE(one.out.same_bits(none.out));
    EXPECT_TRUE(one.log_sum_exp.same_bits(none.log_sum_exp));
    EXPECT_TRUE(one.dqkv.same_bits(none.dqkv));
}

/// Several tiles of queries and keys: with a last one that is full, and that is not; windows that
/// end within a tile and at its edge; heads in several pieces, fp32 and bf16, the last one narrow.
const AttentionShape kTiles[] = {
    {.sequences = 1, .seq_length = 128, .heads = 1, .head_size = 64, .kv_heads = 1},
    {.sequences = 1, .seq_length = 131, .heads = 2, .head_size = 20, .kv_heads = 1, .softcap = 2},
    {.sequences = 2, .seq_length = 200, .heads = 2, .head_size = 4, .kv_heads = 1, .window = 64},
    {.sequences = 1, .seq_length = 330, .heads = 1, .head_size = 4, .kv_heads = 1, .window = 100},
    {.sequences = 1, .seq_length = 90, .heads = 2, .head_size = 80, .kv_heads = 1},
    {.sequences = 1, .seq_length = 70, .heads = 1, .head_size = 136, .kv_heads = 1, .window = 40},
};

TEST_P(CudaAttention, AddsUpOverTilesOfQueriesAndKeysAndPiecesOfHeads) {
    Device device;
    for (const AttentionShape& shape : kTiles) {
        SCOPED_TRACE(testing::Message() << shape.seq_length << " tokens, head of "
                                        << shape.head_size << ", window " << shape.window);
        const auto qkv =
            Matrix::random(shape.tokens(), shape.qkv_columns(), GetParam(), 1, -1.0, 1.0);
        const auto dout = Matrix::random(shape.tokens(), shape.query_columns(), GetParam(), 2);
        expect_textbook(run(device, device.context(), shape, qkv, dout, scratch_bytes(shape)), qkv,
                        dout, shape);
    }
}

// What no query of a tile of 64 sees is not read, but for the rest of the first tile of keys.
TEST_P(CudaAttention, NeverReadsKeysThatNoQueryOfATileSees) {
    AttentionShape shape{
        .sequences = 1, .seq_length = 330, .heads = 1, .head_size = 4, .kv_heads = 1, .window = 20};
    constexpr int64_t kRead = 256, kFirst = 320;  // multiples of 64; 320 - 19 is in the tile of 256
    Device device;
    auto qkv = Matrix::random(330, 12, GetParam(), 1);
    for (int64_t t = 0; t < kRead; ++t) {
        for (int64_t i = 0; i < 12; ++i) qkv.set(t, i, NAN);
    }
    const auto dout = Matrix::random(330, 4, GetParam(), 2);
    const auto expect_finite = [&](const std::vector<int32_t>& mask) {
        const Results results =
            run(device, device.context(), shape, qkv, dout, scratch_bytes(shape), mask);
        EXPECT_TRUE(std::isnan(results.out.get(0, 0)) && std::isnan(results.dqkv.get(0, 0)));
        for (int64_t t = kFirst; t < 330; ++t) {
            for (const int64_t i : {0, 4, 8}) {  // of q, k and v
                EXPECT_TRUE(std::isfinite(results.dqkv.get(t, i))) << t;
            }
            EXPECT_TRUE(std::isfinite(results.out.get(t, 0))) << t;
        }
    };
    expect_finite({});
    shape.window = 0;
    expect_finite(documents(shape, {kRead + 10}));
}

TEST_P(CudaAttention, AWindowOfAllKeysGivesTheBitsOfNone) {
    AttentionShape shape{
        .sequences = 1, .seq_length = 40, .heads = 2, .head_size = 8, .kv_heads = 1};
    Device device;
    const auto qkv = Matrix::random(40, shape.qkv_columns(), GetParam(), 1, -2.0, 2.0);
    const auto dout = Matrix::random(40, 16, GetParam(), 2);
    const Results none = run(device, device.context(), shape, qkv, dout, scratch_bytes(shape));
    for (const int64_t window : {40, 1000}) {
        shape.window = window;
        const Results all = run(device, device.context(), shape, qkv, dout, scratch_bytes(shape));
        EXPECT_TRUE(all.out.same_bits(none.out)) << window;
        EXPECT_TRUE(all.log_sum_exp.same_bits(none.log_sum_exp)) << window;
        EXPECT_TRUE(all.dqkv.same_bits(none.dqkv)) << window;
    }
}

TEST_P(CudaAttention, SurvivesScoresFarOutsideTheRangeOfExp) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 40, .heads = 1, .head_size = 16, .kv_heads = 1};
    Device device;
    const auto qkv = Matrix::random(40, 48, GetParam(), 1, -100.0, 100.0);
    const auto dout = Matrix::random(40, 16, GetParam(), 2);
    const Results results = run(device, device.context(), shape, qkv, dout, scratch_bytes(shape));
    for (int64_t row = 0; row < 40; ++row) {
        // a convex combination of values within +-100
        for (int64_t col = 0; col < 16; ++col)
            EXPECT_LE(std::abs(results.out.get(row, col)), 100.5);
        EXPECT_TRUE(std::isfinite(results.log_sum_exp.get(row, 0)));
    }
}

TEST_P(CudaAttention, RefusesTooSmallAWorkspace) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 4, .heads = 1, .head_size = 4, .kv_heads = 1};
    Device device;
    const auto qkv = Matrix::random(4, 12, GetParam(), 1);
    EXPECT_THROW(run(device, device.context(), shape, qkv, Matrix::random(4, 4, GetParam(), 2),
                     scratch_bytes(shape) - 1),
                 UsageError);
}

TEST_P(CudaAttention, RefusesHeadsThatCannotShareKeys) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 2, .heads = 3, .head_size = 4, .kv_heads = 2};
    Device device;
    EXPECT_THROW(
        run(device, device.context(), shape, Matrix::random(2, shape.qkv_columns(), GetParam(), 1),
            Matrix::random(2, 12, GetParam(), 2), scratch_bytes(shape)),
        UsageError);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaAttention, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

class CudaAttentionStatistics : public OnDevice {};

TEST_F(CudaAttentionStatistics, ArePackedBySequenceAndHeadForCudnnAndBack) {
    const int64_t sequences = 3, seq_length = 5, heads = 2;
    Device device;
    const auto rows = Matrix::random(sequences * seq_length, heads, DType::fp32, 1);
    const DeviceMatrix in_rows(device, rows), back(device, Matrix(15, heads, DType::fp32));
    const DeviceArray<float> packed(device, std::vector<float>(30));
    cuda::pack_statistics(device.context(), in_rows, seq_length, packed.data());
    const auto values = packed.download();
    for (int64_t i = 0; i < 30; ++i) {
        const int64_t token = i % seq_length, head = i / seq_length % heads;
        const int64_t sequence = i / seq_length / heads;
        EXPECT_EQ(values[static_cast<size_t>(i)], rows.get(sequence * seq_length + token, head));
    }
    cuda::unpack_statistics(device.context(), packed.data(), seq_length, back);
    const Matrix result = back.download();
    EXPECT_TRUE(result.same_bits(rows));
    EXPECT_TRUE(result.gaps_are_intact());
}

/// Needs no GPU, but counts as a test of one.
class CudaAttentionWorkspace : public OnDevice {};

TEST_F(CudaAttentionWorkspace, HoldsOneNumberForEachQueryAndItsHeads) {
    AttentionShape shape{
        .sequences = 8, .seq_length = 1024, .heads = 25, .head_size = 64, .kv_heads = 5};
    EXPECT_EQ(cuda::attention_workspace_bytes(shape, DType::fp32, 1), 8 * 1024 * 25 * 4);
    shape.queries = 10;
    for (const DType type : {DType::fp32, DType::bf16}) {
        EXPECT_EQ(cuda::attention_workspace_bytes(shape, type, 1), 8 * 10 * 25 * 4);
    }
    EXPECT_EQ(cuda::attention_workspace_bytes({}, DType::bf16, 1), 0);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
