// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

class RowLossLabels : public OnDevice {};

TEST_F(RowLossLabels, ThatNobodyCheckedMakeTheLossNaN) {
    Device device;
    const DeviceMatrix logits(device, Matrix::random(3, 5, DType::fp32, 1));
    const DeviceMatrix losses(device, Matrix(3, 1, DType::fp32));
    const DeviceArray<int32_t> labels(device, {4, 5, 1 << 30});
    cuda::cross_entropy_forward(device.context(), logits, labels, 1, losses);
    const Matrix found = losses.download();
    EXPECT_TRUE(std::isfinite(found.get(0, 0)));
    EXPECT_TRUE(std::isnan(found.get(1, 0)));
    EXPECT_TRUE(std::isnan(found.get(2, 0)));
}

}  // namespace
}  // namespace vocabpipe::kernels::test
