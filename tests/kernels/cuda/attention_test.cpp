// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention.hpp"

#include <vector>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/attention_statistics.hpp"
#include "tests/kernels/attention_oracle.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

const AttentionShape kShapes[] = {
    {.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1},
    {.sequences = 2, .seq_length = 3, .heads = 1, .head_size = 17, .kv_heads = 1},
    {.sequences = 1, .seq_length = 17, .heads = 3, .head_size = 8, .kv_heads = 3},
    {.sequences = 3, .seq_length = 40, .heads = 2, .head_size = 16, .kv_heads = 2},
    {.sequences = 1, .seq_length = 65, .heads = 2, .head_size = 5, .kv_heads = 2},
};

int64_t scratch_bytes(AttentionShape shape) {
    return cuda::attention_workspace_bytes(shape, DType::bf16, 1);
}

struct Results {
    Matrix out, log_sum_exp, dqkv;
};

/// Forward and backward of the given matrices in a workspace of `bytes`.
Results run(const Device& device, Context& ctx, AttentionShape shape, const Matrix& qkv,
            const Matrix& dout, int64_t bytes) {
    const DType type = qkv.type();
    const DeviceMatrix dqkv_in(device, qkv), ddout(device, dout);
    const DeviceMatrix out(device, Matrix(shape.tokens(), shape.query_columns(), type));
    const DeviceMatrix lse(device, Matrix(shape.tokens(), shape.heads, DType::fp32));
    const DeviceMatrix dqkv(device, Matrix(shape.tokens(), shape.qkv_columns(), type, 8));
    const DeviceBytes forward_workspace(static_cast<size_t>(bytes));
    cuda::causal_attention_forward(ctx, dqkv_in, shape, out, lse, forward_workspace);
    const DeviceBytes backward_workspace(static_cast<size_t>(bytes));
    cuda::causal_attention_backward(ctx, ddout, dqkv_in, out, lse, shape, dqkv, backward_workspace);
    return {out.download(), lse.download(), dqkv.download()};
}

class CudaAttention : public OnDeviceWithParam<DType> {};

void expect_textbook(const Results& results, const Matrix& qkv, const Matrix& dout,
                     AttentionShape shape) {
    const Naive naive(qkv, dout, shape, qkv.type());
    expect_close(results.out, naive.out, within(naive.out_bound));
    expect_close(results.log_sum_exp, naive.log_sum_exp, log_sum_exp_bound(naive, shape));
    expect_close(results.dqkv, naive.dqkv, within(naive.dqkv_bound));
}

TEST_P(CudaAttention, AgreesWithTheTextbookInBothDirections) {
    Device device;
    for (const auto& shape : kShapes) {
        for (const int64_t gap : {3, 8}) {
            SCOPED_TRACE(testing::Message()
                         << shape.sequences << " sequences of " << shape.seq_length << ", "
                         << shape.heads << " heads of " << shape.head_size << ", gap " << gap);
            const auto qkv =
                random_with_gap(shape.tokens(), shape.qkv_columns(), GetParam(), gap, 1, -2.0, 2.0);
            const auto dout =
                random_with_gap(shape.tokens(), shape.query_columns(), GetParam(), gap, 2);
            expect_textbook(run(device, device.context(), shape, qkv, dout, scratch_bytes(shape)),
                            qkv, dout, shape);
        }
    }
}

// More queries than scores are held of at a time, and rows that end within a block's first vectors.
TEST_P(CudaAttention, SumsGradientsOfKeysOverBlocksOfQueries) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 530, .heads = 1, .head_size = 4, .kv_heads = 1};
    ASSERT_LT(cuda::AttentionPlan(shape).query_rows, shape.seq_length);
    Device device;
    const auto qkv = Matrix::random(530, 12, GetParam(), 1, -2.0, 2.0);
    const auto dout = Matrix::random(530, 4, GetParam(), 2);
    expect_textbook(run(device, device.context(), shape, qkv, dout, scratch_bytes(shape)), qkv,
                    dout, shape);
}

TEST_P(CudaAttention, SmallerWorkspacesGiveTheSameBits) {
    const AttentionShape shape{
        .sequences = 5, .seq_length = 19, .heads = 3, .head_size = 8, .kv_heads = 3};
    Device device;
    const auto qkv = Matrix::random(shape.tokens(), shape.qkv_columns(), GetParam(), 1, -2.0, 2.0);
    const auto dout = Matrix::random(shape.tokens(), shape.query_columns(), GetParam(), 2);
    const cuda::AttentionPlan plan(shape);
    const int64_t group = plan.group_bytes();
    ASSERT_EQ(plan.workspace_bytes(), 5 * group) << "one group per sequence, all at a time";
    const Results whole = run(device, device.context(), shape, qkv, dout, 5 * group);
    expect_textbook(whole, qkv, dout, shape);
    for (const int64_t bytes : {group, 2 * group, 3 * group + 64}) {
        const Results parts = run(device, device.context(), shape, qkv, dout, bytes);
        EXPECT_TRUE(parts.out.same_bits(whole.out)) << bytes;
        EXPECT_TRUE(parts.log_sum_exp.same_bits(whole.log_sum_exp)) << bytes;
        EXPECT_TRUE(parts.dqkv.same_bits(whole.dqkv)) << bytes;
    }
}

// Rows too long for registers: p overwrites, tile by tile, the scores that it is computed from.
TEST_P(CudaAttention, ReadsLongRowsAgain) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 4104, .heads = 1, .head_size = 1, .kv_heads = 1};
    Device device;
    const auto qkv = Matrix::random(shape.tokens(), 3, GetParam(), 1, -2.0, 2.0);
    const DeviceMatrix dqkv(device, qkv), out(device, Matrix(shape.tokens(), 1, GetParam()));
    const DeviceMatrix lse(device, Matrix(shape.tokens(), 1, DType::fp32));
    const DeviceBytes workspace(static_cast<size_t>(scratch_bytes(shape)));
    cuda::causal_attention_forward(device.context(), dqkv, shape, out, lse, workspace);
    const Matrix result = out.download(), log_sum_exp = lse.download();
    for (const int64_t row : {0, 511, 512, 4095, 4096, 4103}) {
        double sum = 0, weighted = 0, magnitude = 0;
        for (int64_t key = 0; key <= row; ++key) {
            const double p = std::exp(qkv.get(row, 0) * qkv.get(key, 1));
            sum += p;
            weighted += p * qkv.get(key, 2);
            magnitude += p * std::abs(qkv.get(key, 2));
        }
        // |score| <= 4: its error, those of exp, and of two sums of row + 1 terms; p and the result
        // are rounded to the run's type.
        const double terms = 2 * static_cast<double>(row + 1) + 64;
        const double relative = terms * kEps32 + 2.04 * unit_roundoff(GetParam());
        EXPECT_NEAR(result.get(row, 0), weighted / sum, relative * magnitude / sum) << row;
        EXPECT_NEAR(log_sum_exp.get(row, 0), std::log(sum), (terms + 64) * kEps32) << row;
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

TEST_P(CudaAttention, RefusesAWorkspaceBelowOneGroup) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 4, .heads = 1, .head_size = 4, .kv_heads = 1};
    Device device;
    const auto qkv = Matrix::random(4, 12, GetParam(), 1);
    EXPECT_THROW(run(device, device.context(), shape, qkv, Matrix::random(4, 4, GetParam(), 2), 64),
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

// Pure functions: no GPU.
/// Needs no GPU, but counts as a test of one.
class CudaAttentionPlan : public OnDevice {};

TEST_F(CudaAttentionPlan, ScratchStaysBelowItsLimitForModelsOfPractice) {
    for (const int64_t seq_length : {1, 128, 1024, 2048, 4096, 8192, 32768}) {
        for (const auto& [heads, head_size] : {std::pair{12, 64}, {25, 64}, {32, 128}}) {
            const AttentionShape shape{.sequences = 8,
                                       .seq_length = seq_length,
                                       .heads = heads,
                                       .head_size = head_size,
                                       .kv_heads = heads};
            const int64_t bytes = cuda::AttentionPlan(shape).workspace_bytes();
            EXPECT_GT(bytes, 0);
            EXPECT_LE(bytes, cuda::kAttentionScratchBytes) << seq_length << " x " << heads;
        }
    }
}

TEST_F(CudaAttentionPlan, GroupsCoverAllHeadsOnce) {
    for (const int64_t heads : {1, 5, 16, 25, 96}) {
        const AttentionShape shape{
            .sequences = 3, .seq_length = 2048, .heads = heads, .head_size = 64, .kv_heads = heads};
        const cuda::AttentionPlan plan(shape);
        const int64_t per_sequence = plan.groups / shape.sequences;
        EXPECT_EQ(plan.groups % shape.sequences, 0);
        EXPECT_GE(per_sequence * plan.group_heads, heads);
        EXPECT_LT((per_sequence - 1) * plan.group_heads, heads);
    }
}

TEST_F(CudaAttentionPlan, OfNothingNeedsNothing) {
    EXPECT_EQ(cuda::attention_workspace_bytes({}, DType::bf16, 1), 0);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
