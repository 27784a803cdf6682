// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

class ScatterWorkspace : public OnDevice {};

TEST_F(ScatterWorkspace, RefusesMoreIdsThanItSorts) {
    Device device(4096);
    const DeviceArray<int32_t> ids(device, std::vector<int32_t>(500, 3));
    for (const DType type : {DType::fp32, DType::bf16}) {
        const DeviceMatrix dy(device, Matrix::random(500, 37, type, 1));
        const DeviceMatrix dshard(device, Matrix(9, 37, DType::fp32));
        EXPECT_THROW(cuda::embedding_scatter_add(device.context(), ids, dy, 0, dshard, true),
                     UsageError);
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
