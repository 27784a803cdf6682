// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

class Experts : public OnDevice {};

TEST_F(Experts, MoreThanTheKernelHoldsAreRefused) {
    Device device;
    const DeviceMatrix logits(device, Matrix(1, 513, DType::fp32));
    const DeviceMatrix one(device, Matrix(1, 1, DType::fp32));
    const DeviceArray<int32_t> choice(device, std::vector<int32_t>(1));
    EXPECT_THROW(
        cuda::router_forward(device.context(), logits, {}, {}, choice, one, logits, logits, one),
        UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
