// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kSlice = 4096;  ///< elements that a block reads at a time
/// One block reads this much in the time of a launch, which a second kernel would cost.
constexpr int64_t kMostOfOneBlock = 4 * kSlice;
/// Partial sums: enough blocks to keep any GPU busy, few enough for one block to add up.
constexpr int64_t kMostParts = 2048;

/// parts[block] = sum over the block's slices; a single block adds to *total. A thread takes the
/// same elements of a slice whether it reads four at a time or one, so both forms give the same
/// bits.
template <bool kDense>
__global__ void __launch_bounds__(kThreads)
    square_parts_kernel(const float* __restrict__ values, int64_t stride, int64_t cols,
                        int64_t count, double* __restrict__ parts, double* total) {
    double sum = 0;
    for (int64_t slice = int64_t{blockIdx.x} * kSlice; slice < count;
         slice += int64_t{gridDim.x} * kSlice) {
        for (int64_t at = slice + int64_t{threadIdx.x} * 4; at < slice + kSlice && at < count;
             at += kThreads * 4) {
            Vector<4> four;
            if (kDense && at + 4 <= count) {
                four.load(values + at);
            } else {
                for (int64_t i = 0; i < 4; ++i) {
                    const int64_t element = at + i;
                    four[static_cast<int>(i)] =
                        element < count ? values[element / cols * stride + element % cols] : 0.0F;
                }
            }
            for (int i = 0; i < 4; ++i) sum += static_cast<double>(four[i]) * four[i];
        }
    }
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x != 0) return;
    if (gridDim.x == 1) {
        *total += sum;
    } else {
        parts[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const double* __restrict__ parts, int64_t count, double* sum) {
    double total = 0;
    for (int64_t i = threadIdx.x; i < count; i += kThreads) total += parts[i];
    total = block_sum<kThreads>(total);
    if (threadIdx.x == 0) *sum += total;
}

}  // namespace

void sum_of_squares(Context& ctx, ConstTensor values, double* sum) {
    require(values.dtype == DType::fp32, "an fp32 tensor");
    const int64_t count = values.size();
    if (count == 0) return;
    const bool dense = (values.stride == values.cols || values.rows == 1) &&
                       reinterpret_cast<uintptr_t>(values.data) % 16 == 0;
    const int64_t blocks =
        count <= kMostOfOneBlock ? 1 : std::min((count + kSlice - 1) / kSlice, kMostParts);
    require(ctx.cuda().workspace().size() >= static_cast<size_t>(blocks) * sizeof(double),
            "16 KiB of workspace");
    auto* const parts = reinterpret_cast<double*>(ctx.cuda().workspace().data());
    launch(ctx, dense ? square_parts_kernel<true> : square_parts_kernel<false>,
           static_cast<unsigned>(blocks), kThreads, values.as<float>(), values.stride, values.cols,
           count, parts, sum);
    if (blocks == 1) return;
    launch(ctx, add_parts_kernel, 1, kThreads, parts, blocks, sum);
}

}  // namespace vocabpipe::kernels::cuda
