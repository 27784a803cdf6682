// SPDX-License-Identifier: Apache-2.0
// What GPUs alone promise of attention; what it computes is compared in tests/conformance/.
#include "kernels/cuda/operators.hpp"

#include <vector>

#include "kernels/cuda/attention_statistics.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/fused_qkv.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

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

TEST_F(CudaAttentionWorkspace, MayNotBeSmaller) {
    const AttentionShape shape{
        .sequences = 1, .seq_length = 4, .heads = 1, .head_size = 4, .kv_heads = 1};
    Device device;
    for (const DType type : {DType::fp32, DType::bf16}) {
        const DeviceMatrix qkv(device, Matrix::random(4, 12, type, 1));
        const DeviceMatrix out(device, Matrix::random(4, 4, type, 2));
        const DeviceMatrix log_sum_exp(device, Matrix(4, 1, DType::fp32));
        const DeviceMatrix dqkv(device, Matrix(4, 12, type));
        const DeviceBytes workspace(
            static_cast<size_t>(cuda::attention_workspace_bytes(shape, type, 1) - 1));
        Context& ctx = device.context();
        const auto q = queries_of(qkv, shape), kv = keys_values_of(qkv, shape);
        EXPECT_THROW(
            cuda::causal_attention_forward(ctx, q, kv, shape, {}, out, log_sum_exp, workspace),
            UsageError);
        EXPECT_THROW(cuda::causal_attention_backward(ctx, out, q, kv, out, log_sum_exp, shape, {},
                                                     queries_of(dqkv, shape),
                                                     keys_values_of(dqkv, shape), workspace),
                     UsageError);
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
