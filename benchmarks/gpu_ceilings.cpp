// SPDX-License-Identifier: Apache-2.0
// The two rates that bound all work on a GPU: a copy within its memory, and a large product.
//
//     gpu_ceilings
//
// copy: bytes read and written. product: 8192 x 8192 x 8192 in bf16 with fp32 sums, random numbers,
// the fastest of the eight algorithms that cuBLASLt lists, for each of the three transpositions of
// a training step, and the best of them. Medians of 10, by the GPU's own clock. One "name: value"
// per line. Exit code: 0; 1 a call failed.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "benchmarks/best_product.hpp"
#include "benchmarks/device_timer.hpp"
#include "benchmarks/gpu_bench.hpp"
#include "vocabpipe/error.hpp"

namespace {

using namespace vocabpipe;

template <typename Work>
double median_ms(cudaStream_t stream, const Work& work) {
    constexpr int kRounds = 10;
    bench::DeviceTimer timer;
    std::vector<float> times;
    for (int round = -2; round < kRounds; ++round) {
        timer.start(stream);
        work();
        timer.stop(stream);
        const float ms = timer.milliseconds();
        if (round >= 0) times.push_back(ms);
    }
    return bench::median(times);
}

void run() {
    std::printf("gpu: %s\n", bench::first_gpu().c_str());
    bench::Gpu gpu;
    {
        constexpr int64_t kBytes = int64_t{4} << 30;
        const bench::Buffer from(kBytes);
        const bench::Buffer to(kBytes);
        const double ms = median_ms(gpu.stream(), [&] {
            kernels::cuda::check(cudaMemcpyAsync(to.bytes().data(), from.bytes().data(), kBytes,
                                                 cudaMemcpyDeviceToDevice, gpu.stream()),
                                 "cudaMemcpyAsync");
        });
        std::printf("copy GB/s: %.0f\n", 2e-6 * static_cast<double>(kBytes) / ms);
    }
    constexpr int64_t n = 8192;
    const bench::Matrix a(n, n, DType::bf16);
    const bench::Matrix b(n, n, DType::bf16);
    const bench::Matrix c(n, n, DType::bf16);
    a.fill(1, 1);
    b.fill(2, 1);
    double best = 0;
    for (const auto& [transpose_a, transpose_b, name] :
         {std::tuple{false, true, "x w^T"}, {false, false, "dy w"}, {true, false, "dy^T x"}}) {
        bench::BestProduct product(
            gpu.context(),
            {.a = a, .transpose_a = transpose_a, .b = b, .transpose_b = transpose_b, .c = c});
        const double ms = median_ms(gpu.stream(), [&] { product.run(); });
        const double rate = 2e-9 * static_cast<double>(n * n) * n / ms;
        std::printf("%s TFLOP/s: %.0f\n", name, rate);
        best = std::max(best, rate);
    }
    std::printf("product TFLOP/s: %.0f\n", best);
}

}  // namespace

int main() {
    try {
        run();
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "gpu_ceilings: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
