// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/side_by_side.hpp"

#include <cmath>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

class CudaSideBySide : public OnDevice {};

TEST_F(CudaSideBySide, StreamsWaitForTheLaneAndTheLaneForThem) {
    Device device;
    Context& ctx = device.context();
    const auto x = random_with_gap(64, 64, DType::fp32, 0, 1);
    const DeviceMatrix from(device, x), before(device, Matrix(64, 64, DType::fp32));
    std::vector<DeviceMatrix> made;
    for (int i = 0; i < 6; ++i) made.emplace_back(device, Matrix(64, 64, DType::fp32));
    const DeviceMatrix sum(device, Matrix(64, 64, DType::fp32));
    cuda::add(ctx, from, from, before);  // 2 x
    {
        cuda::SideBySide side_by_side(ctx, 4);
        for (const DeviceMatrix& each : made) {
            side_by_side.next();
            cuda::add(ctx, before, from, each);  // 3 x
        }
    }
    cuda::add(ctx, made[0], made[5], sum);
    for (const int i : {1, 2, 3, 4}) cuda::add(ctx, sum, made[static_cast<size_t>(i)], sum);
    const Matrix result = sum.download();
    for (int64_t i = 0; i < 64; ++i) {
        for (int64_t j = 0; j < 64; ++j) {
            EXPECT_NEAR(result.get(i, j), 18 * x.get(i, j), 1e-5 * std::abs(18 * x.get(i, j)));
        }
    }
}

TEST_F(CudaSideBySide, TheLanesQueueIsTheContextsAgain) {
    Device device;
    Context& ctx = device.context();
    const cudaStream_t lane = ctx.cuda().stream();
    const size_t workspace = ctx.cuda().workspace().size();
    {
        cuda::SideBySide side_by_side(ctx, 2);
        side_by_side.next();
        const cudaStream_t first = ctx.cuda().stream();
        const std::byte* const first_workspace = ctx.cuda().workspace().data();
        EXPECT_NE(first, lane);
        EXPECT_LE(ctx.cuda().workspace().size(), workspace / cuda::SideBySide::kStreams);
        side_by_side.next();
        EXPECT_NE(ctx.cuda().stream(), first);
        EXPECT_NE(ctx.cuda().workspace().data(), first_workspace);
        side_by_side.next();
        EXPECT_EQ(ctx.cuda().stream(), first);
    }
    EXPECT_EQ(ctx.cuda().stream(), lane);
    EXPECT_EQ(ctx.cuda().workspace().size(), workspace);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
