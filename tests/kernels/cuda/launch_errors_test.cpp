// SPDX-License-Identifier: Apache-2.0
// What an error of the GPU says, on the stand-in, which can be made to fail.
#include <gmock/gmock.h>

#include <cstdlib>
#include <source_location>
#include <string>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// How a message begins; of what a lambda function launches, clang 14 knows the place alone.
std::string from([[maybe_unused]] const std::string& name, const std::string& file) {
#ifdef __cpp_lib_source_location
    return "operator " + name + " (" + file + ":";
#else
    return "(" + file + ":";
#endif
}

class CudaLaunchErrors : public testing::Test {
protected:
    ~CudaLaunchErrors() override {
        unsetenv("VOCABPIPE_SYNCHRONOUS");
        restore();
    }
    static void restore() {
        cuda_stand_in::restore_contexts();
        (void)cudaGetLastError();
    }
    /// Lets engines that are made from now on wait for every launch.
    static void synchronous() { setenv("VOCABPIPE_SYNCHRONOUS", "1", /*overwrite=*/1); }

    /// Once `kernel` has an illegal address, `run` says all of this.
    template <typename Run>
    static void expect_message(const char* kernel, const Run& run, const std::string& begin,
                               const std::string& middle) {
        cuda_stand_in::fail_kernel(cudaErrorIllegalAddress, kernel);
        EXPECT_THAT(run,
                    ThrowsMessage<DeviceError>(AllOf(
                        HasSubstr(begin), HasSubstr(middle),
                        testing::EndsWith(": cudaErrorIllegalAddress: an illegal memory access was "
                                          "encountered"))));
        restore();
    }
};

TEST_F(CudaLaunchErrors, NameOperatorKernelAndGridIfLaunchesAreSynchronous) {
    synchronous();
    Device device;
    const auto matrix = [&](int64_t rows, int64_t cols, DType type) {
        return DeviceMatrix(device, Matrix::random(rows, cols, type, 1));
    };
    const DeviceMatrix x = matrix(40, 64, DType::bf16), y = matrix(40, 64, DType::bf16);
    const DeviceMatrix gain = matrix(1, 64, DType::bf16), statistics = matrix(40, 2, DType::fp32);
    expect_message(
        "layer_norm_forward",
        [&] { cuda::layer_norm_forward(device.context(), x, gain, gain, 1e-5F, y, statistics); },
        from("layer_norm_forward", "layer_norm.cu"),
        "), kernel layer_norm_forward_kernel<__nv_bfloat16, ");
    expect_message(
        "map_kernel", [&] { cuda::add(device.context(), x, x, y); }, from("add", "elementwise.cu"),
        ", grid 1 x 10, block 64 x 4: ");
    // The kernel is that of a helper, the operator the one that was called.
    const DeviceMatrix dw = matrix(64, 64, DType::fp32), dbias = matrix(1, 64, DType::fp32);
    expect_message(
        "column_pieces",
        [&] { cuda::linear_backward_weight(device.context(), x, y, dw, dbias, true); },
        from("linear_backward_weight", "linear.cpp"), ", block 32 x 8: ");
}

TEST_F(CudaLaunchErrors, NameOperatorAndProductIfLaunchesAreSynchronous) {
    synchronous();
    Device device;
    const DeviceMatrix x(device, Matrix::random(40, 64, DType::bf16, 1));
    const DeviceMatrix w(device, Matrix::random(24, 64, DType::bf16, 2));
    const DeviceMatrix y(device, Matrix(40, 24, DType::bf16));
    expect_message(
        "cublasLtMatmul", [&] { cuda::linear_forward(device.context(), x, w, {}, y); },
        from("linear_forward", "linear.cpp"),
        "), product of (40, 64) and (64, 24) bf16 into bf16, the second one transposed: ");
}

TEST_F(CudaLaunchErrors, ArriveLaterAndSayHowToFindTheKernelElsewhere) {
    Device device;
    const DeviceMatrix x(device, Matrix::random(4, 4, DType::fp32, 1));
    cuda_stand_in::fail_kernel(cudaErrorIllegalAddress, "map_kernel");
    EXPECT_NO_THROW(cuda::add(device.context(), x, x, x));
    const auto says = [](const char* call) {
        return ThrowsMessage<DeviceError>(
            std::string(call) +
            ": cudaErrorIllegalAddress: an illegal memory access was encountered; "
            "VOCABPIPE_SYNCHRONOUS=1 names the kernel");
    };
    EXPECT_THAT([&] { device.finish(); }, says("cudaStreamSynchronize"));
    EXPECT_THAT([&] { cuda::scale(device.context(), x, 2, x); }, says("cudaLaunchKernelEx"));
    restore();
}

TEST_F(CudaLaunchErrors, OfTheLaunchItselfNameTheKernelAlways) {
    Device device;
    const DeviceMatrix x(device, Matrix::random(4, 4, DType::fp32, 1));
    cuda_stand_in::fail_next_call(cudaErrorLaunchOutOfResources, "cudaLaunchKernelEx");
    EXPECT_THAT([&] { cuda::add(device.context(), x, x, x); },
                ThrowsMessage<DeviceError>(
                    AllOf(HasSubstr(from("add", "elementwise.cu")), HasSubstr("kernel map_kernel<"),
                          HasSubstr("cudaLaunchKernelEx: cudaErrorLaunchOutOfResources: "))));
    restore();
}

TEST_F(CudaLaunchErrors, WaitForEveryLaunchOnlyIfTheVariableIsOne) {
    const auto waits = [] {
        Device device;
        const DeviceMatrix x(device, Matrix::random(16, 16, DType::fp32, 1));
        const auto before = cuda_stand_in::counters().stream_synchronisations;
        cuda::add(device.context(), x, x, x);
        cuda::linear_forward(device.context(), x, x, {},
                             DeviceMatrix(device, Matrix(16, 16, DType::fp32)));
        return cuda_stand_in::counters().stream_synchronisations - before;
    };
    const auto uploads = waits();
    setenv("VOCABPIPE_SYNCHRONOUS", "0", 1);
    EXPECT_EQ(waits(), uploads);
    synchronous();
    EXPECT_EQ(waits(), uploads + 2);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
