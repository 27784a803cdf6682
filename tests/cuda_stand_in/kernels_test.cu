// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <ctime>
#include <numeric>
#include <vector>

#include "tests/cuda_stand_in/device_array.hpp"
#include "tests/support/cuda_stand_in/control.hpp"

namespace {

using stand_in_test::DeviceArray;
using stand_in_test::launch;
using stand_in_test::Stream;

__global__ void scale(float* out, const float* in, int count, float factor) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) {
        out[i] = factor * in[i];
    }
}

TEST(StandInKernels, EveryThreadOfAnOddGridRunsOnce) {
    const Stream stream;
    std::vector<float> in(1000);
    std::iota(in.begin(), in.end(), 1.0F);
    const DeviceArray<float> x(in);
    const DeviceArray<float> y(in.size());
    ASSERT_EQ(launch(5, 224, stream, scale, y.get(), x.get(), 1000, 3), cudaSuccess);
    stream.synchronize();
    const std::vector<float> out = y.values();
    for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(out[i], 3.0F * in[i]);
    }
}

__global__ void write_index(uint3* index, dim3* sizes) {
    const unsigned int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    index[block * blockDim.x * blockDim.y * blockDim.z + thread] = threadIdx;
    if (block == 0 && thread == 0) {
        sizes[0] = gridDim;
        sizes[1] = blockDim;
    }
}

TEST(StandInKernels, IndicesHaveThreeDimensions) {
    const Stream stream;
    const DeviceArray<uint3> index(2 * 3 * 2 * 4 * 3 * 2);
    const DeviceArray<dim3> sizes(2);
    ASSERT_EQ(launch({2, 3, 2}, {4, 3, 2}, stream, write_index, index.get(), sizes.get()),
              cudaSuccess);
    stream.synchronize();
    const std::vector<uint3> seen = index.values();
    for (size_t i = 0; i < seen.size(); ++i) {
        const auto thread = static_cast<unsigned int>(i % 24);
        ASSERT_EQ(seen[i].x, thread % 4);
        ASSERT_EQ(seen[i].y, thread / 4 % 3);
        ASSERT_EQ(seen[i].z, thread / 12);
    }
    EXPECT_EQ(sizes.values()[0].y, 3U);
    EXPECT_EQ(sizes.values()[1].x, 4U);
}

/// Sum of a block's row in the usual way: shuffles in the warp, shared memory across warps.
__global__ void row_sums(float* sums, const float* in, int columns) {
    __shared__ float of_warp[32];
    const float* const row = in + static_cast<size_t>(blockIdx.x) * columns;
    float sum = 0.0F;
    for (int c = static_cast<int>(threadIdx.x); c < columns; c += static_cast<int>(blockDim.x)) {
        sum += row[c];
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0F;
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(0xffffffffU, sum, static_cast<unsigned int>(offset));
        }
        if (threadIdx.x == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}

TEST(StandInKernels, BlockReductionsAddEveryElement) {
    const Stream stream;
    const int rows = 7;
    const int columns = 1001;
    std::vector<float> in(rows * columns);
    for (size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<float>(i % 13);
    }
    const DeviceArray<float> x(in);
    for (const unsigned int threads : {32U, 256U, 1024U}) {
        const DeviceArray<float> sums(rows);
        ASSERT_EQ(launch(rows, threads, stream, row_sums, sums.get(), x.get(), columns),
                  cudaSuccess);
        stream.synchronize();
        for (int r = 0; r < rows; ++r) {
            const auto* const row = in.data() + r * columns;
            EXPECT_EQ(sums.values()[r], std::accumulate(row, row + columns, 0.0F)) << threads;
        }
    }
}

__global__ void shuffles(int* out) {
    const int lane = static_cast<int>(threadIdx.x);
    const unsigned int all = 0xffffffffU;
    out[lane] = __shfl_sync(all, lane, 5);
    out[32 + lane] = __shfl_sync(all, lane, 1, 8);
    out[64 + lane] = __shfl_up_sync(all, lane, 3);
    out[96 + lane] = __shfl_down_sync(all, lane, 2, 16);
    out[128 + lane] = __shfl_xor_sync(all, lane, 6);
}

TEST(StandInKernels, ShufflesMoveValuesAsTheProgrammingGuideDefines) {
    const Stream stream;
    const DeviceArray<int> out(160);
    ASSERT_EQ(launch(1, 32, stream, shuffles, out.get()), cudaSuccess);
    stream.synchronize();
    const std::vector<int> values = out.values();
    for (int lane = 0; lane < 32; ++lane) {
        EXPECT_EQ(values[lane], 5);
        EXPECT_EQ(values[32 + lane], lane / 8 * 8 + 1);
        EXPECT_EQ(values[64 + lane], lane >= 3 ? lane - 3 : lane);
        EXPECT_EQ(values[96 + lane], lane % 16 < 14 ? lane + 2 : lane);
        EXPECT_EQ(values[128 + lane], lane ^ 6);
    }
}

__global__ void reverse(int* values) {
    __shared__ int kept[256];
    kept[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

TEST(StandInKernels, ABarrierOrdersWhatThreadsExchange) {
    const Stream stream;
    std::vector<int> in(256);
    std::iota(in.begin(), in.end(), 1);
    const std::vector<int> expected(in.rbegin(), in.rend());
    const DeviceArray<int> x(in);
    ASSERT_EQ(launch(1, 256, stream, reverse, x.get()), cudaSuccess);
    stream.synchronize();
    EXPECT_EQ(x.values(), expected);
}

__global__ void histogram(unsigned int* bins, const int* values, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) {
        atomicAdd(&bins[values[i]], 1U);
    }
}

TEST(StandInKernels, AtomicsOfTwoStreamsLoseNothing) {
    const Stream a;
    const Stream b;
    std::vector<int> values(5000);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<int>(i % 3);
    }
    const DeviceArray<int> x(values);
    const DeviceArray<unsigned int> bins(std::vector<unsigned int>{0, 0, 0});
    ASSERT_EQ(launch(20, 256, a, histogram, bins.get(), x.get(), 5000), cudaSuccess);
    ASSERT_EQ(launch(20, 256, b, histogram, bins.get(), x.get(), 5000), cudaSuccess);
    a.synchronize();
    b.synchronize();
    EXPECT_EQ(bins.values(), (std::vector<unsigned int>{3334, 3334, 3332}));
}

__global__ void barrier_for_some() {
    if (threadIdx.x != 7) {
        __syncthreads();
    }
}

__global__ void barrier_against_shuffle(int* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        out[threadIdx.x] = __shfl_sync(0xffffffffU, 1, 0);
        __syncthreads();
    }
    if (threadIdx.x == 40) {
        out[threadIdx.x] = __shfl_sync(0xffffffffU, 1, 0);
    }
}

__global__ void shuffle_in_a_part_of_a_warp(int* out) {
    out[threadIdx.x] = __shfl_sync(0xffffffffU, 1, 0);
}

__global__ void partial_mask(int* out) {
    out[threadIdx.x] = __shfl_sync(0x0000ffffU, 1, 0);
}

__global__ void different_operations(int* out) {
    out[threadIdx.x] =
        threadIdx.x < 16 ? __shfl_sync(0xffffffffU, 1, 0) : __shfl_xor_sync(0xffffffffU, 1, 1);
}

__global__ void product_of_half_a_warp(float* out) {
    const uint32_t a[4] = {};
    float c[4] = {};
    if (threadIdx.x < 16) cuda_stand_in::mma_m16n8k16(c, a, 0, 0);
    if (threadIdx.x == 0) *out = c[0];
}

__global__ void matrices_at_odd_addresses(float* out) {
    __shared__ __align__(16) unsigned char rows[32 * 16 + 16];
    uint32_t words[4];
    cuda_stand_in::load_matrices(words, rows + 16 * threadIdx.x + 8, false);
    if (threadIdx.x == 0) *out = static_cast<float>(words[0]);
}

template <typename... P, typename... A>
void run_misuse(unsigned int threads, void (*kernel)(P...), A... arguments) {
    const Stream stream;
    (void)launch(1, threads, stream, kernel, arguments...);
    stream.synchronize();
}

TEST(StandInKernelsDeathTest, MisuseEndsTheProcessAndNamesTheKernel) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    int out[64] = {};
    EXPECT_DEATH(run_misuse(64, barrier_for_some),
                 "barrier_for_some.*of 64 threads 1 have ended, 63 wait at __syncthreads");
    EXPECT_DEATH(run_misuse(64, barrier_against_shuffle, out),
                 "barrier_against_shuffle.*63 have ended.*1 in a warp shuffle");
    EXPECT_DEATH(run_misuse(20, shuffle_in_a_part_of_a_warp, out),
                 "shuffle_in_a_part_of_a_warp.*a warp of 20 lanes");
    EXPECT_DEATH(run_misuse(32, partial_mask, out), "partial_mask.*mask 0000ffff");
    EXPECT_DEATH(run_misuse(32, different_operations, out),
                 "different_operations.*a different operation");
    float result = 0;
    EXPECT_DEATH(run_misuse(32, product_of_half_a_warp, &result),
                 "product_of_half_a_warp.*16 have ended.*16 in .* an instruction of a warp");
    EXPECT_DEATH(run_misuse(32, matrices_at_odd_addresses, &result), "not 16-byte aligned");
    EXPECT_DEATH(__syncthreads(), "__syncthreads\\(\\) outside of a kernel");
}

TEST(StandInKernels, ImpossibleLaunchesAreRefused) {
    const Stream stream;
    const DeviceArray<float> x(1);
    EXPECT_EQ(launch(1, 1025, stream, scale, x.get(), x.get(), 1, 1.0F),
              cudaErrorInvalidConfiguration);
    EXPECT_EQ(launch(0, 32, stream, scale, x.get(), x.get(), 1, 1.0F),
              cudaErrorInvalidConfiguration);
    EXPECT_EQ(launch({1, 65536}, 32, stream, scale, x.get(), x.get(), 1, 1.0F),
              cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(StandInKernels, ReductionsOfABlockTakeMicroseconds) {
    const Stream stream;
    const DeviceArray<float> x(std::vector<float>(64 * 256, 1.0F));
    const DeviceArray<float> sums(64);
    ASSERT_EQ(launch(64, 256, stream, row_sums, sums.get(), x.get(), 256), cudaSuccess);
    stream.synchronize();
    const std::clock_t before = std::clock();  // of the processor: the machine may be busy
    ASSERT_EQ(launch(64, 256, stream, row_sums, sums.get(), x.get(), 256), cudaSuccess);
    stream.synchronize();
    const double microseconds = static_cast<double>(std::clock() - before) * 1e6 / CLOCKS_PER_SEC;
    RecordProperty("microseconds_per_block", std::to_string(microseconds / 64));
    EXPECT_LT(microseconds / 64, 5000.0);  // generous: sanitizers
}

}  // namespace
