// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/generation_cases.hpp"

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

class CudaGeneration : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

TEST_P(CudaGeneration, CachedAttentionIsThatOfTheLastTokensOfASequence) {
    const DType type = GetParam();
    Device device;
    for (const CachedCase& one : kCachedCases) {
        SCOPED_TRACE(testing::Message() << one.shape.heads << " heads of " << one.shape.head_size);
        const CachedTensors tensors(one, type);
        const DeviceMatrix q(device, tensors.q), kv(device, tensors.kv);
        const DeviceMatrix out(device, Matrix(one.queries, one.shape.query_columns(), type, 3));
        cuda::cached_attention_forward(device.context(), q, kv, one.shape, out);
        expect_close(out.download(), tensors.exact(host), tensors.bound());
    }
}

TEST_P(CudaGeneration, LogitsAgreeWithTheReferenceAndShardsWithTheWhole) {
    const DType type = GetParam();
    Device device;
    for (const int64_t h : {1, 17, 64, 520}) {
        for (const float softcap : {0.0F, 3.0F}) {
            const auto x = Matrix::random(1, h, type, 1), w = Matrix::random(37, h, type, 2);
            const DeviceMatrix dx(device, x), dw(device, w);
            const DeviceMatrix z(device, Matrix(1, 37, DType::fp32));
            const DeviceMatrix parts(device, Matrix(1, 37, DType::fp32));
            cuda::logits_forward(device.context(), dx, dw, softcap, z);
            Matrix exact(1, 37, DType::fp64);
            reference::logits_forward(host, x, w, softcap, exact);
            expect_close(z.download(), exact, [&](int64_t, int64_t) {
                return static_cast<double>(h + 20) * static_cast<double>(h) * kEps32;
            });
            for (const auto& [first, rows] : {std::pair{0, 8}, {8, 0}, {8, 1}, {9, 28}}) {
                cuda::logits_forward(device.context(), dx, Tensor(dw).row_range(first, rows),
                                     softcap, Tensor(parts).column_range(first, rows));
            }
            EXPECT_TRUE(parts.download().same_bits(z.download())) << "h " << h;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaGeneration, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test
