// SPDX-License-Identifier: Apache-2.0
// The main() of programs for GPUs (tests/support/cuda_main.cpp) ends the process behind a test that
// loses its context. This program starts itself to see it.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/cuda_stand_in/lost_context.hpp"

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What this program prints and its exit code, with these of its disabled tests.
std::pair<std::string, int> run_disabled(const std::string& tests) {
    const std::string command =
        "exec '" + std::filesystem::read_symlink("/proc/self/exe").string() +
        "' --gtest_also_run_disabled_tests --gtest_filter='" + tests + "' 2>&1";
    std::FILE* const child = popen(command.c_str(), "r");
    std::string text;
    std::array<char, 256> part{};
    while (std::fgets(part.data(), part.size(), child) != nullptr) text += part.data();
    const int status = pclose(child);
    return {text, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

TEST(DISABLED_CudaMain, ALosesItsContext) {
    cuda_stand_in::fail_kernel(cudaErrorIllegalAddress, "a kernel");
    EXPECT_TRUE(cuda_stand_in::fails(0, "a kernel"));
}
TEST(DISABLED_CudaMain, BNeverRuns) {
    SUCCEED();
}
TEST(DISABLED_CudaMain, CLeavesAnErrorThatDoesNotStick) {
    EXPECT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
}
TEST(DISABLED_CudaMain, DRunsAfterIt) {
    SUCCEED();
}
TEST(DISABLED_CudaMain, EHasNoGpu) {
    cuda_stand_in::set_device_count(0);
}

TEST(CudaMain, NamesTheTestThatLostItsContextAndEndsTheProcess) {
    const auto [text, exit_code] = run_disabled("DISABLED_CudaMain.A*:DISABLED_CudaMain.B*");
    EXPECT_EQ(exit_code, 99);
    EXPECT_THAT(text,
                AllOf(HasSubstr("\nsticky CUDA error after DISABLED_CudaMain.ALosesItsContext: "
                                "cudaErrorIllegalAddress: an illegal memory access was "
                                "encountered\n"),
                      Not(HasSubstr("BNeverRuns"))));
}

TEST(CudaMain, GoesOnAfterOtherErrorsAndWithoutGpus) {
    const auto [text, exit_code] =
        run_disabled("DISABLED_CudaMain.C*:DISABLED_CudaMain.D*:DISABLED_CudaMain.E*");
    EXPECT_EQ(exit_code, 0);
    EXPECT_THAT(text, AllOf(HasSubstr("[  PASSED  ] 3 tests."), Not(HasSubstr("sticky"))));
}

}  // namespace
