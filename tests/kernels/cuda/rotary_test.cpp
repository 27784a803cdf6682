// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct RotaryCase {
    AttentionShape shape;
    int64_t rotated;  ///< columns of a head
    int64_t gap;
};
const RotaryCase kRotaryCases[] = {
    {{.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 2, .kv_heads = 1}, 2, 3},
    {{.sequences = 2, .seq_length = 5, .heads = 3, .head_size = 6, .kv_heads = 1}, 6, 3},
    {{.sequences = 3, .seq_length = 4, .heads = 4, .head_size = 64, .kv_heads = 2}, 64, 8},
    {{.sequences = 1, .seq_length = 9, .heads = 2, .head_size = 256, .kv_heads = 1}, 256, 0},
    {{.sequences = 2, .seq_length = 5, .heads = 3, .head_size = 7, .kv_heads = 1}, 4, 3},
    {{.sequences = 3, .seq_length = 4, .heads = 4, .head_size = 64, .kv_heads = 4}, 16, 8},
    // Rotated halves of whole vectors, but not the heads.
    {{.sequences = 2, .seq_length = 3, .heads = 4, .head_size = 20, .kv_heads = 2}, 16, 0},
};

class CudaRotary : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

TEST_P(CudaRotary, RotatesQAndKByTheirPositionAndLeavesTheRest) {
    const DType type = GetParam();
    Device device;
    for (const auto& [shape, rotated, gap] : kRotaryCases) {
        for (const bool backward : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << rotated << " of " << shape.head_size << " " << backward);
            // Two positions more than tokens; no rotation, so that c and s cannot be mixed up.
            const auto table =
                random_with_gap(shape.seq_length + 2, rotated, DType::fp32, gap, 1, 0.25, 1.0);
            const auto qkv =
                random_with_gap(shape.tokens(), shape.qkv_columns(), type, gap, 2, -2.0, 2.0);
            auto exact = qkv.as(DType::fp64);
            const DeviceMatrix dtable(device, table), dqkv(device, qkv);
            if (backward) {
                reference::rotary_backward(host, table, shape, exact);
                cuda::rotary_backward(device.context(), dtable, shape, dqkv);
            } else {
                reference::rotary_forward(host, table, shape, exact);
                cuda::rotary_forward(device.context(), dtable, shape, dqkv);
            }
            // Two products of at most 2 and their sum.
            expect_close(dqkv.download(), exact, [&](int64_t row, int64_t col) {
                const bool v = col >= shape.query_columns() + shape.kv_columns();
                if (v || col % shape.head_size >= rotated) return 0.0;
                return 8 * kEps32 + unit_roundoff(type) * std::abs(exact.get(row, col)) * 1.01;
            });
        }
    }
}

TEST_P(CudaRotary, RefusesATableThatIsTooShort) {
    Device device;
    const AttentionShape shape = kRotaryCases[1].shape;
    const DeviceMatrix table(device, Matrix::random(4, 6, DType::fp32, 1));
    const DeviceMatrix qkv(device,
                           Matrix::random(shape.tokens(), shape.qkv_columns(), GetParam(), 2));
    EXPECT_THROW(cuda::rotary_forward(device.context(), table, shape, qkv), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaRotary, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test
