// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/column_sums.hpp"

#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct Sizes {
    int64_t n, h, gap;
};

class CudaColumnSums : public OnDeviceWithParam<DType> {};

TEST_P(CudaColumnSums, AgreeWithTheSumAndAccumulate) {
    // A workspace that holds the sums of no piece, of a few, and of all.
    for (const size_t workspace : {size_t{0}, size_t{2048}, size_t{1} << 20}) {
        Device device(workspace);
        for (const auto& [n, h, gap] :
             {Sizes{0, 5, 3}, {1, 1, 3}, {7, 300, 3}, {200, 40, 8}, {333, 9, 3}}) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << workspace);
                const auto x = random_with_gap(n, h, GetParam(), gap, 1);
                const Matrix start =
                    accumulate ? Matrix::random(1, h, DType::fp32, 2) : Matrix(1, h, DType::fp32);
                Matrix exact(1, h, DType::fp64), scale(1, h, DType::fp64);
                for (int64_t col = 0; col < h; ++col) {
                    double sum = accumulate ? start.get(0, col) : 0.0, size = std::abs(sum);
                    for (int64_t row = 0; row < n; ++row) {
                        sum += x.get(row, col);
                        size += std::abs(x.get(row, col));
                    }
                    exact.set(0, col, sum);
                    scale.set(0, col, size);
                }
                const DeviceMatrix dx(device, x), sums(device, start);
                cuda::column_sums(device.context(), dx, sums, accumulate);
                expect_close(sums.download(), exact, sum_bound(scale, exact, n + 1, DType::fp32));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaColumnSums, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test
