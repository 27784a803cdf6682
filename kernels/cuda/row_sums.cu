// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/row_sums.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int64_t kRowsPerPart = 256;  ///< at least: each part is one addend in double
constexpr int64_t kMostParts = 256;

/// A thread per column and part. Short fp32 sums, collected in double, lose no digits over many
/// rows.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_parts_kernel(const T* __restrict__ values, int64_t stride, int64_t rows, int64_t cols,
                     const int32_t* __restrict__ labels, const float* __restrict__ g,
                     int64_t rows_per_part, double* __restrict__ parts) {
    const int64_t col = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (col >= cols) return;
    const int64_t begin = int64_t{blockIdx.y} * rows_per_part;
    const int64_t end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
    double total = 0;
    for (int64_t n = begin; n < end;) {
        const int64_t stop = n + 64 < end ? n + 64 : end;
        float part = 0;
        for (; n < stop; ++n) {
            const float weight = g == nullptr ? 1.0F : labels[n] < 0 ? 0.0F : g[n];
            part += weight * to_float(values[n * stride + col]);
        }
        total += part;
    }
    parts[blockIdx.y * cols + col] = total;
}

__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const double* __restrict__ parts, int64_t count, int64_t cols,
                     double* __restrict__ sums) {
    const int64_t col = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (col >= cols) return;
    double total = 0;
    for (int64_t part = 0; part < count; ++part) total += parts[part * cols + col];
    sums[col] = total;
}

}  // namespace

const double* sum_rows(CallSite ctx, ConstTensor values, std::span<const int32_t> labels,
                       std::span<const float> g) {
    require(
        g.size() == labels.size() && (g.empty() || static_cast<int64_t>(g.size()) == values.rows),
        "a label and a g per row, or neither");
    const std::span<std::byte> workspace = ctx.cuda().workspace();
    const int64_t fitting =
        static_cast<int64_t>(workspace.size() / sizeof(double)) / std::max<int64_t>(values.cols, 1);
    require(fitting >= 2, "16 bytes of workspace per column");
    const int64_t wanted = std::max<int64_t>((values.rows + kRowsPerPart - 1) / kRowsPerPart, 1);
    const int64_t most = std::min({wanted, kMostParts, fitting - 1});
    const int64_t rows_per_part = std::max<int64_t>((values.rows + most - 1) / most, 1);
    auto* const sums = reinterpret_cast<double*>(workspace.data());
    double* const parts = sums + values.cols;
    const unsigned blocks = blocks_for(values.cols, kThreads);
    with_element_type(values.dtype, [&]<typename T>() {
        launch(ctx, sum_parts_kernel<T>, dim3(blocks, static_cast<unsigned>(most)), kThreads,
               values.as<T>(), values.stride, values.rows, values.cols, labels.data(), g.data(),
               rows_per_part, parts);
    });
    launch(ctx, add_parts_kernel, blocks, kThreads, parts, most, values.cols, sums);
    return sums;
}

}  // namespace vocabpipe::kernels::cuda
