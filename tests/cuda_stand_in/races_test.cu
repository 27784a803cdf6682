// SPDX-License-Identifier: Apache-2.0
// What the stand-in reports of the accesses of a kernel's threads to memory, and what it must not.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda_stand_in/device_array.hpp"
#include "tests/support/cuda_stand_in/sanitizers.hpp"

namespace {

using stand_in_test::DeviceArray;
using stand_in_test::launch;
using stand_in_test::Stream;

constexpr unsigned int full_mask = 0xffffffffU;

/// Runs the kernel with grid x block threads over 4096 zeros.
void run(dim3 grid, dim3 block, void (*kernel)(int*)) {
    const Stream stream;
    const DeviceArray<int> data(std::vector<int>(4096, 0));
    ASSERT_EQ(launch(grid, block, stream, kernel, data.get()), cudaSuccess);
    stream.synchronize();
}

class StandInRaces : public testing::Test {
protected:
    void SetUp() override {
#ifndef CUDA_STAND_IN_CHECKS_ACCESSES
        GTEST_SKIP() << "kernels report their accesses in builds without a sanitizer only";
#endif
        GTEST_FLAG_SET(death_test_style, "threadsafe");
    }
};
using StandInRacesDeathTest = StandInRaces;

enum class Barrier { none, shuffle, warp, block };

template <Barrier barrier>
__device__ void meet() {
    if constexpr (barrier == Barrier::shuffle) {
        (void)__shfl_sync(full_mask, 1, 0);
    } else if constexpr (barrier == Barrier::warp) {
        __syncwarp();
    } else if constexpr (barrier == Barrier::block) {
        __syncthreads();
    }
}

/// Every thread reads what its neighbour, `distance` away, wrote to shared memory.
template <Barrier barrier, unsigned int distance>
__global__ void read_of_a_neighbour(int* out) {
    __shared__ int kept[64];
    kept[threadIdx.x] = 1;
    meet<barrier>();
    out[blockIdx.x * blockDim.x + threadIdx.x] = kept[threadIdx.x ^ distance];
}

/// Every thread writes over what its neighbour may not have read yet.
template <Barrier barrier, unsigned int distance>
__global__ void write_over_a_neighbour(int* out) {
    __shared__ int kept[64];
    kept[threadIdx.x] = 1;
    __syncthreads();
    const int read = kept[threadIdx.x ^ distance];
    meet<barrier>();
    kept[threadIdx.x] = 2;
    out[blockIdx.x * blockDim.x + threadIdx.x] = read;
}

/// In place and in global memory: element t of the row becomes that of its neighbour.
template <Barrier barrier, unsigned int distance>
__global__ void swap_neighbours(int* data) {
    int* const row = data + blockIdx.x * blockDim.x;
    const int value = row[threadIdx.x ^ distance];
    meet<barrier>();
    row[threadIdx.x] = value;
}

TEST_F(StandInRaces, BarriersOrderTheThreadsThatPassThem) {
    run(3, 64, read_of_a_neighbour<Barrier::block, 32>);
    run(3, 64, read_of_a_neighbour<Barrier::warp, 1>);
    run(3, 64, write_over_a_neighbour<Barrier::block, 32>);
    run(3, 64, write_over_a_neighbour<Barrier::warp, 1>);
    run(3, 64, swap_neighbours<Barrier::block, 32>);
    run(3, 64, swap_neighbours<Barrier::warp, 1>);
    run(3, 64, swap_neighbours<Barrier::none, 0>);
}

TEST_F(StandInRacesDeathTest, AMissingBarrierOfTheBlockIsReported) {
    EXPECT_DEATH(run(1, 64, read_of_a_neighbour<Barrier::none, 32>),
                 "read_of_a_neighbour.*(reads 4 bytes of shared memory.*race with the write of|"
                 "reads 4 bytes of shared memory that its block has not written)");
    EXPECT_DEATH(run(1, 64, write_over_a_neighbour<Barrier::none, 32>),
                 "write_over_a_neighbour.*shared memory.*race with the (read|write) of");
    EXPECT_DEATH(run(1, 64, swap_neighbours<Barrier::none, 32>),
                 "swap_neighbours.*global memory.*race with the (read|write) of");
}

TEST_F(StandInRacesDeathTest, ABarrierOfTheWarpIsNoneOfTheBlock) {
    EXPECT_DEATH(run(1, 64, write_over_a_neighbour<Barrier::warp, 32>), "shared memory.*race");
    EXPECT_DEATH(run(1, 64, swap_neighbours<Barrier::warp, 32>), "global memory.*race");
}

TEST_F(StandInRacesDeathTest, AMissingBarrierOfTheWarpIsReportedEvenWhereShufflesMeet) {
    EXPECT_DEATH(run(1, 32, write_over_a_neighbour<Barrier::none, 1>), "shared memory.*race");
    EXPECT_DEATH(run(1, 32, write_over_a_neighbour<Barrier::shuffle, 1>), "shared memory.*race");
    EXPECT_DEATH(run(1, 32, read_of_a_neighbour<Barrier::shuffle, 1>), "shared memory.*race");
    EXPECT_DEATH(run(1, 32, swap_neighbours<Barrier::shuffle, 1>), "global memory.*race");
}

/// Reads by all threads between two barriers, then a write by one of them.
template <bool with_barrier, unsigned int writer>
__global__ void write_after_all_read(int* out) {
    __shared__ int one;
    if (threadIdx.x == 0) one = 1;
    __syncthreads();
    out[threadIdx.x] = one;
    if (with_barrier) __syncthreads();
    if (threadIdx.x == writer) one = 2;
}

TEST_F(StandInRacesDeathTest, AWriteRacesWithAnyOfManyReads) {
    run(1, 256, write_after_all_read<true, 77>);
    EXPECT_DEATH(run(1, 256, write_after_all_read<false, 0>), "race with the (read|write) of");
    EXPECT_DEATH(run(1, 256, write_after_all_read<false, 77>), "race with the (read|write) of");
    EXPECT_DEATH(run(1, 256, write_after_all_read<false, 255>), "race with the (read|write) of");
    EXPECT_DEATH(run(1, 32, write_after_all_read<false, 13>), "race with the (read|write) of");
}

/// The same thread of two blocks writes one element.
__global__ void write_of_two_blocks(int* out) {
    if (threadIdx.x == 3) out[7] = 1;
}

/// Block 0 reads what block 1 writes.
__global__ void read_of_another_block(int* out) {
    if (blockIdx.x == 1) {
        out[0] = 1;
    } else {
        out[1] = out[0];
    }
}

TEST_F(StandInRacesDeathTest, BlocksOfALaunchAreNotOrdered) {
    run(1, 32, write_of_two_blocks);
    EXPECT_DEATH(run(2, 32, write_of_two_blocks), "the write of thread \\(3, 0, 0\\) of another");
    EXPECT_DEATH(run(2, 1, read_of_another_block),
                 "race with the (read|write) of .* another block");
}

__global__ void leave_something_behind(int* out) {
    __shared__ int kept;
    if (blockIdx.x == 0) kept = 1;
    __syncthreads();
    out[blockIdx.x] = kept;
}

TEST_F(StandInRacesDeathTest, SharedMemoryIsNewInEveryBlock) {
    run(1, 1, leave_something_behind);
    EXPECT_DEATH(run(4, 1, leave_something_behind),
                 "reads 4 bytes of shared memory that its block has not written");
}

__global__ void add_to_one(int* out) {
    atomicAdd(out, 1);
}

__global__ void add_and_read(int* out) {
    atomicAdd(out, 1);
    out[1 + threadIdx.x] = *out;
}

TEST_F(StandInRacesDeathTest, AtomicsRaceWithOtherAccessesOnly) {
    run(2, 64, add_to_one);
    EXPECT_DEATH(run(1, 64, add_and_read), "race with the (add|read) of");
}

__global__ void write_halves(int* data) {
    auto* const halves = reinterpret_cast<__nv_bfloat16*>(data);
    halves[blockIdx.x * blockDim.x + threadIdx.x] = __float2bfloat16(1.0F);
}

TEST_F(StandInRaces, NeighboursOfTwoBytesAreApart) {
    run(2, 33, write_halves);
}

TEST_F(StandInRaces, LaunchesOfAStreamAreInOrder) {
    const Stream stream;
    const DeviceArray<int> data(std::vector<int>(4096, 0));
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(launch(1, 64, stream, swap_neighbours<Barrier::block, 32>, data.get()),
                  cudaSuccess);
        ASSERT_EQ(launch(1, 64, stream, write_halves, data.get()), cudaSuccess);
    }
    stream.synchronize();
}

__global__ void take_tickets(int* counter, int* tickets) {
    tickets[blockIdx.x] = atomicAdd(counter, 1);
}

TEST(StandInOrder, BlocksRunOnceEachInAnotherOrderWithEveryLaunch) {
    const Stream stream;
    std::vector<std::vector<int>> orders;
    for (int i = 0; i < 3; ++i) {
        const DeviceArray<int> counter(std::vector<int>{0});
        const DeviceArray<int> tickets(31);
        ASSERT_EQ(launch(31, 1, stream, take_tickets, counter.get(), tickets.get()), cudaSuccess);
        stream.synchronize();
        orders.push_back(tickets.values());
        std::vector<int> seen(31);
        for (const int ticket : orders.back()) ++seen.at(static_cast<size_t>(ticket));
        EXPECT_EQ(seen, std::vector<int>(31, 1));
    }
    EXPECT_NE(orders[0], orders[1]);
    EXPECT_NE(orders[1], orders[2]);
}

__global__ void copy_vectors(float4* to, const float* from) {
    to[threadIdx.x] = *reinterpret_cast<const float4*>(from + 4 * threadIdx.x);
}

void copy_from(size_t offset) {
    const Stream stream;
    const DeviceArray<float> from(std::vector<float>(64, 1.0F));
    const DeviceArray<float4> to(8);
    ASSERT_EQ(launch(1, 8, stream, copy_vectors, to.get(), from.get() + offset), cudaSuccess);
    stream.synchronize();
}

TEST(StandInAlignmentDeathTest, AMisalignedVectorIsReported) {
#if CUDA_STAND_IN_TSAN && !defined(CUDA_STAND_IN_CHECKS_ACCESSES)
    GTEST_SKIP() << "alignment is not checked under ThreadSanitizer";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    copy_from(0);
    copy_from(4);
    EXPECT_DEATH(copy_from(1), "misaligned address.*float4.*requires 16 byte alignment");
    EXPECT_DEATH(copy_from(2), "misaligned address.*float4.*requires 16 byte alignment");
}

}  // namespace
