// SPDX-License-Identifier: Apache-2.0
// main() of the GoogleTest programs for GPUs. A kernel that fails may take its context along: then
// every later call of the process fails, and so would every later test. The process ends instead,
// with a line that names the test; who started it may start it again behind that test.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/check.hpp"

#ifdef VOCABPIPE_TEST_WITH_DEVICES
#include "vocabpipe/cuda/device.hpp"
#endif

namespace {

constexpr int kExitCode = 99;

/// Looks after each test, on every GPU: what a kernel did wrong may show only then.
class StickyErrors final : public ::testing::EmptyTestEventListener {
    void OnTestEnd(const ::testing::TestInfo& test) override {
        int devices = 0;
        cudaError_t error = cudaGetDeviceCount(&devices);
        for (int device = 0; error == cudaSuccess && device < devices; ++device) {
            error = cudaSetDevice(device);
            if (error == cudaSuccess) error = cudaDeviceSynchronize();
        }
        if (!vocabpipe::kernels::cuda::is_sticky(error)) {
            (void)cudaSetDevice(0);
            (void)cudaGetLastError();
            return;
        }
        std::printf("sticky CUDA error after %s.%s: %s: %s\n", test.test_suite_name(), test.name(),
                    cudaGetErrorName(error), cudaGetErrorString(error));
        std::fflush(nullptr);
        std::_Exit(kExitCode);  // destructors would call CUDA, which fails
    }
};

}  // namespace

int main(int argc, char** argv) {
#ifdef VOCABPIPE_TEST_WITH_DEVICES
    // Before the first call of CUDA, which is the listener's where a test needs no GPU.
    vocabpipe::prepare_cuda(/*nccl_joins_ranks=*/true);
#endif
    ::testing::InitGoogleTest(&argc, argv);
    ::testing::UnitTest::GetInstance()->listeners().Append(new StickyErrors);
    return RUN_ALL_TESTS();
}
