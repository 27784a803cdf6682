// SPDX-License-Identifier: Apache-2.0
// The matrix instructions against what the PTX ISA says of them: every element of every fragment.
#include "kernels/cuda/mma.cuh"

#include <array>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

constexpr int kLanes = 32;

__global__ void mma_kernel(const uint32_t* a, const uint32_t* b, float* c) {
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t of_a[4];
    float of_c[4];
    for (int i = 0; i < 4; ++i) {
        of_a[i] = a[lane * 4 + i];
        of_c[i] = c[lane * 4 + i];
    }
    cuda::mma(of_c, of_a, b[lane * 2], b[lane * 2 + 1]);
    for (int i = 0; i < 4; ++i) c[lane * 4 + i] = of_c[i];
}

template <bool kTransposes>
__global__ void load_matrices_kernel(const uint16_t* from, uint32_t* to) {
    __shared__ __align__(16) uint16_t rows[kLanes][8];
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = 0; i < 8; ++i) rows[lane][i] = from[lane * 8 + i];
    __syncwarp();
    uint32_t words[4];
    cuda::load_matrices<kTransposes>(words, rows[lane]);
    for (int i = 0; i < 4; ++i) to[lane * 4 + i] = words[i];
}

uint32_t bf16_bits(double value) {
    const __nv_bfloat16 narrow(static_cast<float>(value));
    return __bfloat16_as_ushort(narrow);
}

class CudaMma : public OnDevice {};

// Small whole numbers: every sum is exact, and a wrong place or sign shows.
TEST_F(CudaMma, MultipliesFragmentsLaidOutAsThePtxIsaSays) {
    const auto a =
        Matrix::random(16, 16, DType::fp32, 1, -9.0, 9.0).mapped(DType::fp32, [](double x) {
            return std::trunc(x);
        });
    const auto b =
        Matrix::random(16, 8, DType::fp32, 2, -9.0, 9.0).mapped(DType::fp32, [](double x) {
            return std::trunc(x);
        });
    const auto c =
        Matrix::random(16, 8, DType::fp32, 3, -9.0, 9.0).mapped(DType::fp32, [](double x) {
            return std::trunc(x);
        });
    std::vector<uint32_t> of_a(kLanes * 4), of_b(kLanes * 2);
    std::vector<float> of_c(kLanes * 4);
    for (int lane = 0; lane < kLanes; ++lane) {
        const int group = lane / 4, within = lane % 4;
        for (int i = 0; i < 8; ++i) {  // a_i of the ISA, two to a word
            const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            const int col = within * 2 + (i & 1) + (i < 4 ? 0 : 8);
            of_a[lane * 4 + i / 2] |= bf16_bits(a.get(row, col)) << (16 * (i % 2));
        }
        for (int i = 0; i < 4; ++i) {
            const int row = within * 2 + (i & 1) + (i < 2 ? 0 : 8);
            of_b[lane * 2 + i / 2] |= bf16_bits(b.get(row, group)) << (16 * (i % 2));
            of_c[lane * 4 + i] =
                static_cast<float>(c.get(i < 2 ? group : group + 8, within * 2 + (i & 1)));
        }
    }
    Device device;
    const DeviceArray<uint32_t> on_a(device, of_a), on_b(device, of_b);
    const DeviceArray<float> on_c(device, of_c);
    cuda::launch(device.context(), mma_kernel, dim3(1), dim3(kLanes), on_a.data(), on_b.data(),
                 on_c.data());
    const auto result = on_c.download();
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int row = i < 2 ? lane / 4 : lane / 4 + 8, col = lane % 4 * 2 + (i & 1);
            double sum = c.get(row, col);
            for (int k = 0; k < 16; ++k) sum += a.get(row, k) * b.get(k, col);
            EXPECT_EQ(result[static_cast<size_t>(lane * 4 + i)], sum) << row << ", " << col;
        }
    }
}

TEST_F(CudaMma, LoadsMatricesWhoseRowsLanesPointAtAlongAndAcross) {
    std::vector<uint16_t> from(kLanes * 8);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i * 257 + 1);
    const auto element = [&](int matrix, int row, int col) -> uint32_t {
        return from[static_cast<size_t>((matrix * 8 + row) * 8 + col)];
    };
    Device device;
    const DeviceArray<uint16_t> rows(device, from);
    for (const bool transposes : {false, true}) {
        const DeviceArray<uint32_t> to(device, std::vector<uint32_t>(kLanes * 4));
        cuda::launch(device.context(),
                     transposes ? load_matrices_kernel<true> : load_matrices_kernel<false>, dim3(1),
                     dim3(kLanes), rows.data(), to.data());
        const auto words = to.download();
        for (int lane = 0; lane < kLanes; ++lane) {
            const int across = lane / 4, along = lane % 4 * 2;
            for (int i = 0; i < 4; ++i) {
                const uint32_t expected =
                    transposes ? element(i, along, across) | element(i, along + 1, across) << 16
                               : element(i, across, along) | element(i, across, along + 1) << 16;
                EXPECT_EQ(words[static_cast<size_t>(lane * 4 + i)], expected)
                    << lane << ", matrix " << i << ", transposes " << transposes;
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
