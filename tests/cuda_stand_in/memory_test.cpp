// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_stand_in/device_array.hpp"
#include "tests/support/cuda_stand_in/control.hpp"

namespace {

using stand_in_test::DeviceArray;
using stand_in_test::Stream;

constexpr size_t kPage = size_t{2} << 20;

/// What is not free of the current device.
size_t taken() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return total - free;
}

class StandInMemory : public testing::Test {
protected:
    ~StandInMemory() override {
        cuda_stand_in::set_memory_bytes(size_t{4} << 30);
        cuda_stand_in::set_device_count(1);
        cudaSetDevice(0);
        cudaGetLastError();
    }
};

TEST_F(StandInMemory, FreshMemoryHoldsNaN) {
    const DeviceArray<float> fresh(100);
    for (const float value : fresh.values()) {
        ASSERT_TRUE(std::isnan(value));
    }
}

TEST_F(StandInMemory, AllocationsBeyondTheDeviceAreRefused) {
    const size_t before = cuda_stand_in::memory_in_use(0);
    const size_t all = taken() + 3 * kPage;
    cuda_stand_in::set_memory_bytes(all);
    cuda_stand_in::reset_counters();
    const DeviceArray<char> most(kPage + 1);  // two pages
    void* more = nullptr;
    EXPECT_EQ(cudaMalloc(&more, kPage + 1), cudaErrorMemoryAllocation);
    EXPECT_EQ(more, nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(taken(), all - kPage);
    ASSERT_EQ(cudaMalloc(&more, kPage), cudaSuccess);
    EXPECT_EQ(taken(), all);
    EXPECT_EQ(cuda_stand_in::memory_in_use(0), before + 2 * kPage + 1);
    ASSERT_EQ(cudaFree(more), cudaSuccess);
    EXPECT_EQ(cuda_stand_in::memory_in_use(0), before + kPage + 1);
    EXPECT_EQ(cuda_stand_in::memory_peak(0), before + 2 * kPage + 1);
    EXPECT_EQ(cuda_stand_in::counters().allocations, 3U);
}

TEST_F(StandInMemory, TakesPagesThatSmallAllocationsShareAndAContext) {
    cuda_stand_in::set_device_count(6);
    ASSERT_EQ(cudaSetDevice(5), cudaSuccess);  // of no other test
    const size_t empty = taken();
    EXPECT_GE(empty, cuda_stand_in::kContextBytes);
    const DeviceArray<char> large(5 * kPage / 2);
    EXPECT_EQ(taken(), empty + 3 * kPage);
    const DeviceArray<char> small(100);
    EXPECT_EQ(taken(), empty + 4 * kPage);
    const DeviceArray<char> beside(kPage / 2);
    EXPECT_EQ(taken(), empty + 4 * kPage);
}

TEST_F(StandInMemory, EveryDeviceHasItsOwn) {
    cuda_stand_in::set_device_count(2);
    cuda_stand_in::set_memory_bytes(taken() + kPage);
    const DeviceArray<char> here(100);
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    const DeviceArray<char> there(100);
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, there.get() + 5), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
    EXPECT_EQ(attributes.device, 1);
}

TEST_F(StandInMemory, CopiesAreRefusedOutsideOfAnAllocation) {
    const Stream stream;
    const DeviceArray<int> device(10);
    std::vector<int> host(11);
    EXPECT_EQ(cudaMemcpyAsync(device.get(), host.data(), 44, cudaMemcpyHostToDevice, stream),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyAsync(device.get() + 1, host.data(), 40, cudaMemcpyHostToDevice, stream),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyAsync(device.get(), host.data(), 40, cudaMemcpyDeviceToDevice, stream),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 4, stream), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyAsync(device.get(), host.data(), 40, cudaMemcpyDefault, stream),
              cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(device.get(), 0, 40, stream), cudaSuccess);
    stream.synchronize();
}

TEST_F(StandInMemory, RowsAreCopiedWithTheirPitch) {
    const Stream stream;
    std::vector<int> in(12);
    std::iota(in.begin(), in.end(), 0);
    const DeviceArray<int> wide(in);  // 3 rows of 4
    const DeviceArray<int> narrow(6);
    ASSERT_EQ(cudaMemcpy2DAsync(narrow.get(), 8, wide.get() + 1, 16, 8, 3, cudaMemcpyDeviceToDevice,
                                stream),
              cudaSuccess);
    stream.synchronize();
    EXPECT_EQ(narrow.values(), (std::vector<int>{1, 2, 5, 6, 9, 10}));
    EXPECT_EQ(
        cudaMemcpy2DAsync(narrow.get(), 4, wide.get(), 16, 8, 3, cudaMemcpyDeviceToDevice, stream),
        cudaErrorInvalidPitchValue);
}

TEST_F(StandInMemory, PinnedMemoryIsKnownAsSuch) {
    void* pinned = nullptr;
    ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
    ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
    std::vector<char> mine(64);
    ASSERT_EQ(cudaHostRegister(mine.data(), mine.size(), cudaHostRegisterDefault), cudaSuccess);
    EXPECT_EQ(cudaHostRegister(mine.data(), mine.size(), cudaHostRegisterDefault),
              cudaErrorHostMemoryAlreadyRegistered);
    EXPECT_EQ(cudaHostUnregister(mine.data()), cudaSuccess);
    EXPECT_EQ(cudaHostUnregister(mine.data()), cudaErrorHostMemoryNotRegistered);
}

TEST_F(StandInMemory, WithoutDevicesEveryCallSaysSo) {
    cuda_stand_in::set_device_count(0);
    int devices = -1;
    EXPECT_EQ(cudaGetDeviceCount(&devices), cudaErrorNoDevice);
    EXPECT_EQ(devices, 0);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorNoDevice);
    EXPECT_EQ(std::string(cudaGetErrorName(cudaGetLastError())), "cudaErrorNoDevice");
}

TEST_F(StandInMemory, CallOfAThreadFailsByItsNumber) {
    cuda_stand_in::fail_call_of_this_thread(cudaErrorLaunchFailure, 2);
    std::thread([] { EXPECT_GT(taken(), 0U); }).join();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(StandInMemory, AnArrangedErrorComesOnceFromTheNamedCall) {
    cuda_stand_in::fail_next_call(cudaErrorLaunchFailure, "cudaMalloc");
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaFree(&device), cudaErrorInvalidValue);
}

TEST_F(StandInMemory, PropertiesAndAttributesAgree) {
    cudaDeviceProp properties{};
    ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    int multiprocessors = 0;
    ASSERT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
              cudaSuccess);
    EXPECT_EQ(properties.multiProcessorCount, multiprocessors);
    EXPECT_EQ(properties.warpSize, 32);
    char bus[16];
    ASSERT_EQ(cudaDeviceGetPCIBusId(bus, sizeof bus, 0), cudaSuccess);
    EXPECT_EQ(std::string(bus), "0000:01:00.0");
    EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
}

}  // namespace
