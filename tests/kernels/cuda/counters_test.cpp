// SPDX-License-Identifier: Apache-2.0
// Whether products and attention went to a library or to our own kernels is counted.
#include "vocabpipe/cuda/counters.hpp"
#include "kernels/cuda/engine.hpp"

#include <cstdint>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/product_plan.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/fused_qkv.hpp"
#include "tests/support/cuda_stand_in/control.hpp"

namespace vocabpipe::kernels::test {
namespace {

/// In the order of their declaration, for messages.
std::vector<int64_t> numbers(const CudaCounters& c) {
    return {c.library_products, c.tiled_products,     c.grouped_products, c.refused_epilogues,
            c.cudnn_attentions, c.varying_attentions, c.own_attentions};
}

class CudaCounts : public testing::Test {
protected:
    ~CudaCounts() override { cuda_stand_in::refuse_algorithms(0); }

    /// Counts of a product, one with bias and GELU, and one without rows.
    static CudaCounters of_products() {
        Device device;
        Context& ctx = device.context();
        const DeviceMatrix x(device, Matrix::random(16, 40, DType::bf16, 1));
        const DeviceMatrix w(device, Matrix::random(24, 40, DType::bf16, 2));
        const DeviceMatrix bias(device, Matrix::random(1, 24, DType::bf16, 3));
        const DeviceMatrix y(device, Matrix(16, 24, DType::bf16, 8));
        const DeviceMatrix before(device, Matrix(16, 24, DType::bf16, 8));
        cuda::linear_forward(ctx, x, w, {}, y);
        cuda::linear_gelu_forward(ctx, x, w, bias, before, y);
        cuda::linear_forward(ctx, x.view().row_range(0, 0), w, {}, y.view().row_range(0, 0));
        device.finish();
        return ctx.cuda().counters();
    }
};

TEST_F(CudaCounts, ProductsByTheLibraryAreToldFromThoseItRefuses) {
    EXPECT_EQ(numbers(of_products()), numbers({.library_products = 2}));
    cuda_stand_in::refuse_algorithms(cuda::ProductPlan::kCandidates);
    EXPECT_EQ(numbers(of_products()), numbers({.tiled_products = 2, .refused_epilogues = 2}))
        << "with GELU and bias; with bias";
}

TEST_F(CudaCounts, AttentionByOwnKernelsIsCountedInBothDirections) {
    Device device;
    const AttentionShape shape{
        .sequences = 1, .seq_length = 8, .heads = 2, .head_size = 8, .kv_heads = 2};
    const DType type = DType::bf16;
    const DeviceMatrix qkv(device, Matrix::random(8, shape.qkv_columns(), type, 1));
    const DeviceMatrix out(device, Matrix::random(8, shape.query_columns(), type, 2));
    const DeviceMatrix log_sum_exp(device, Matrix(8, 2, DType::fp32));
    const DeviceMatrix dqkv(device, Matrix(8, shape.qkv_columns(), type));
    const DeviceBytes workspace(
        static_cast<size_t>(cuda::attention_workspace_bytes(shape, type, 1)));
    Context& ctx = device.context();
    cuda::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), shape,
                                   {}, out, log_sum_exp, workspace);
    cuda::causal_attention_backward(ctx, out, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                    out, log_sum_exp, shape, {}, queries_of(dqkv, shape),
                                    keys_values_of(dqkv, shape), workspace);
    device.finish();
    EXPECT_EQ(numbers(ctx.cuda().counters()), numbers({.own_attentions = 2}));
}

}  // namespace
}  // namespace vocabpipe::kernels::test
