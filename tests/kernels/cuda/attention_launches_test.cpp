// SPDX-License-Identifier: Apache-2.0
// Against the stand-in toolkit only, which counts.
#include "kernels/cuda/operators.hpp"

#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/fused_qkv.hpp"
#include "tests/support/cuda_stand_in/control.hpp"

namespace vocabpipe::kernels::test {
namespace {

// Several tiles, heads that share keys, and a head in two pieces: still one kernel forward, and
// three backward.
TEST(CudaAttentionLaunches, AreOneForwardAndThreeBackward) {
    Device device;
    for (const int64_t head_size : {8, 72, 136}) {
        const AttentionShape shape{
            .sequences = 2, .seq_length = 70, .heads = 4, .head_size = head_size, .kv_heads = 2};
        const DType type = DType::bf16;
        const DeviceMatrix qkv(device, Matrix::random(140, shape.qkv_columns(), type, 1));
        const DeviceMatrix dout(device, Matrix::random(140, shape.query_columns(), type, 2));
        const DeviceMatrix out(device, Matrix(140, shape.query_columns(), type));
        const DeviceMatrix log_sum_exp(device, Matrix(140, 4, DType::fp32));
        const DeviceMatrix dqkv(device, Matrix(140, shape.qkv_columns(), type));
        const DeviceBytes workspace(
            static_cast<size_t>(cuda::attention_workspace_bytes(shape, type, 1)));
        const auto launches = [] { return cuda_stand_in::counters().kernel_launches; };
        const auto before = launches();
        cuda::causal_attention_forward(device.context(), queries_of(qkv, shape),
                                       keys_values_of(qkv, shape), shape, {}, out, log_sum_exp,
                                       workspace);
        EXPECT_EQ(launches() - before, 1U);
        cuda::causal_attention_backward(device.context(), dout, queries_of(qkv, shape),
                                        keys_values_of(qkv, shape), out, log_sum_exp, shape, {},
                                        queries_of(dqkv, shape), keys_values_of(dqkv, shape),
                                        workspace);
        EXPECT_EQ(launches() - before, 1U + 3U);
        device.finish();
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
