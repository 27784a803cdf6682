// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "benchmarks/device_timer.hpp"
#include "benchmarks/operator_device.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/operators.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::bench {

namespace {

using kernels::cuda::check;

/// Stream, workspace and engine of one rank, as its lane for passes has them.
class CudaOperators final : public OperatorDevice {
public:
    CudaOperators()
        : engine_(0),
          context_({.poll = {}, .operators = &kernels::cuda::operators(), .cuda = &engine_}),
          workspace_(allocate(static_cast<size_t>(kernels::cuda::kPassWorkspaceBytes))) {
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
        engine_.use({.stream = stream_,
                     .workspace = {workspace_.get(),
                                   static_cast<size_t>(kernels::cuda::kPassWorkspaceBytes)}});
    }
    ~CudaOperators() override {
        (void)cudaStreamSynchronize(stream_);
        (void)cudaStreamDestroy(stream_);
    }

    [[nodiscard]] std::string name() const override {
        cudaDeviceProp properties{};
        check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
        return properties.name;
    }
    [[nodiscard]] Context& context() override { return context_; }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(size_t bytes) override {
        void* data = nullptr;
        if (cudaMalloc(&data, bytes) != cudaSuccess) {
            (void)cudaGetLastError();
            throw OutOfMemoryError(std::to_string(bytes) + " bytes do not fit the GPU's memory");
        }
        return {static_cast<std::byte*>(data), [](std::byte* memory) { (void)cudaFree(memory); }};
    }
    void upload(const void* from, std::byte* to, size_t bytes) override {
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }
    [[nodiscard]] double seconds(const std::function<void()>& work, int runs) override {
        timer_.start(stream_);
        for (int run = 0; run < runs; ++run) work();
        timer_.stop(stream_);
        const double result = 1e-3 * timer_.milliseconds() / runs;
        check(cudaGetLastError(), "a kernel");
        return result;
    }
    [[nodiscard]] int runs_of_short_operators() const override { return 20; }

private:
    kernels::cuda::Engine engine_;
    Context context_;
    std::shared_ptr<std::byte> workspace_;
    cudaStream_t stream_ = nullptr;
    DeviceTimer timer_;
};

}  // namespace

std::unique_ptr<OperatorDevice> cuda_operators() {
    int count = 0;
    if (const cudaError_t status = cudaGetDeviceCount(&count);
        status != cudaSuccess || count == 0) {
        (void)cudaGetLastError();
        throw DeviceError(std::string("--device cuda needs a GPU: ") +
                          (status == cudaSuccess ? "there is none" : cudaGetErrorString(status)));
    }
    check(cudaSetDevice(0), "cudaSetDevice");
    return std::make_unique<CudaOperators>();
}

}  // namespace vocabpipe::bench
