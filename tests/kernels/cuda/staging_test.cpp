// SPDX-License-Identifier: Apache-2.0
// Lists that the host writes for a device which is late: they arrive as they were, and the host
// waits only where it must.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

class Staging : public testing::Test {
protected:
    void TearDown() override { cuda_stand_in::set_delays({}); }
};

TEST_F(Staging, ListsArriveAsTheyWereHoweverLateTheDeviceIs) {
    Device device;
    std::vector<DeviceArray<int32_t>> arrays;
    for (int i = 0; i < 8; ++i) arrays.emplace_back(device, std::vector<int32_t>(1000, -1));
    cuda_stand_in::set_delays({.seed = 3, .longest = std::chrono::milliseconds(5)});
    cuda_stand_in::reset_counters();
    for (int32_t i = 0; i < 8; ++i) {
        std::vector<int32_t> list(static_cast<size_t>(900 + i), i);
        cuda::write_from_host(device.context(), list, arrays[static_cast<size_t>(i)]);
        std::ranges::fill(list, -2);
    }
    EXPECT_LE(cuda_stand_in::counters().event_synchronisations, 6U);
    EXPECT_EQ(cuda_stand_in::counters().stream_synchronisations, 0U);
    EXPECT_EQ(cuda_stand_in::counters().allocations, 2U);
    for (int32_t i = 0; i < 8; ++i) {
        std::vector<int32_t> expected(1000, -1);
        std::fill_n(expected.begin(), 900 + i, i);
        EXPECT_EQ(arrays[static_cast<size_t>(i)].download(), expected) << i;
    }
}

TEST_F(Staging, RefusesAListWithoutRoom) {
    Device device;
    const DeviceArray<int32_t> few(device, std::vector<int32_t>(3));
    const std::vector<int32_t> list(4);
    EXPECT_THROW(cuda::write_from_host(device.context(), list, few), UsageError);
}

TEST_F(Staging, SaysHowMuchPinnedMemoryThereIsNot) {
    Device device;
    const DeviceArray<int32_t> array(device, std::vector<int32_t>(4));
    cuda_stand_in::fail_next_call(cudaErrorMemoryAllocation, "cudaHostAlloc");
    const std::vector<int32_t> list(4);
    EXPECT_THROW(cuda::write_from_host(device.context(), list, array), OutOfMemoryError);
    cuda::write_from_host(device.context(), list, array);
    EXPECT_EQ(array.download(), list);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
