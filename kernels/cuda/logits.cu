// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kRows = kThreads / kWarpThreads;  ///< per block

/// A warp per row of w: the row is read once, which takes all the time.
template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads)
    logits_kernel(const T* __restrict__ x, const T* __restrict__ w, int64_t stride, int64_t rows,
                  int64_t h, float softcap, float* __restrict__ z) {
    const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kWarpThreads;
    if (row >= rows) return;  // whole warps
    const unsigned lane = threadIdx.x % kWarpThreads;
    float sum = 0.0F;
    for (int64_t col = int64_t{lane} * kCount; col < h; col += int64_t{kWarpThreads} * kCount) {
        const auto a = loaded<T, kCount>(x + col);
        const auto b = loaded<T, kCount>(w + row * stride + col);
        for (int i = 0; i < kCount; ++i) sum += a[i] * b[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) z[row] = softcap > 0.0F ? softcap * tanhf(sum / softcap) : sum;
}

}  // namespace

void logits_forward(Context& ctx, ConstTensor x, ConstTensor w, float softcap, Tensor z) {
    require_logits(x, w, softcap, z);
    if (w.rows == 0) return;
    // Vectors, and with them the order of sums, are chosen as if there were many rows.
    ConstTensor rows_of_x = x, rows_of_w = w;
    rows_of_x.rows = rows_of_w.rows = 2;
    with_element_type(x.dtype, [&]<typename T>() {
        with_vectors(
            [&]<int kCount>() {
                for (int64_t n = 0; n < x.rows; ++n) {
                    launch(ctx, logits_kernel<kCount, T>, dim3(blocks_for(w.rows, kRows)),
                           dim3(kThreads), x.as<T>() + n * x.stride, w.as<T>(), w.stride, w.rows,
                           x.cols, softcap, z.as<float>() + n * z.stride);
                }
            },
            rows_of_x, rows_of_w);
    });
}

}  // namespace vocabpipe::kernels::cuda
