// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "benchmarks/device_timer.hpp"
#include "benchmarks/gpu_bench.hpp"
#include "benchmarks/operator_device.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::bench {

namespace {

using kernels::cuda::check;

class CudaOperators final : public OperatorDevice {
public:
    [[nodiscard]] std::string name() const override { return name_; }
    [[nodiscard]] Context& context() override { return gpu_.context(); }
    [[nodiscard]] const kernels::Operators& operators() const override {
        return kernels::cuda::operators();
    }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(size_t bytes) override {
        auto buffer = std::make_shared<Buffer>(static_cast<int64_t>(bytes));
        return {buffer, buffer->bytes().data()};
    }
    void upload(const void* from, std::byte* to, size_t bytes) override {
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, gpu_.stream()),
              "cudaMemcpyAsync");
        check(cudaStreamSynchronize(gpu_.stream()), "cudaStreamSynchronize");
    }
    [[nodiscard]] double seconds(const std::function<void()>& work, int runs) override {
        timer_.start(gpu_.stream());
        for (int run = 0; run < runs; ++run) work();
        timer_.stop(gpu_.stream());
        const double result = 1e-3 * timer_.milliseconds() / runs;
        check(cudaGetLastError(), "a kernel");
        return result;
    }
    [[nodiscard]] std::string products() override {
        const CudaCounters& counts = gpu_.context().cuda().counters();
        return std::to_string(counts.library_products) + " by cuBLASLt, " +
               std::to_string(counts.tiled_products) + " by the tiled kernel, " +
               std::to_string(counts.grouped_products) + " grouped by CUTLASS";
    }
    [[nodiscard]] int runs_of_short_operators() const override { return 20; }

private:
    std::string name_ = first_gpu();
    Gpu gpu_;
    DeviceTimer timer_;
};

}  // namespace

std::unique_ptr<OperatorDevice> cuda_operators() {
    return std::make_unique<CudaOperators>();
}

}  // namespace vocabpipe::bench
