// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/fold_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

/// A block of threads per row. bias and residual may be null; residual may be out.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    fold_partials_kernel(const T* __restrict__ partials, int64_t member_stride, int64_t stride,
                         int64_t count, const T* __restrict__ bias, const T* residual,
                         int64_t residual_stride, T* out, int64_t out_stride, int64_t rows,
                         int64_t cols) {
    const auto add = [](Vector<kCount>& sum, const T* from) {
        Vector<kCount> next;
        next.load(from);
        for (int i = 0; i < kCount; ++i) sum[i] += next[i];
    };
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* const first = partials + row * stride;
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> sum;
            sum.load(first + col);
            for (int64_t member = 1; member < count; ++member) {
                add(sum, first + member * member_stride + col);
            }
            if (bias != nullptr) add(sum, bias + col);
            if (residual != nullptr) add(sum, residual + row * residual_stride + col);
            sum.store(out + row * out_stride + col);
        }
    }
}

}  // namespace

void fold_partials(Context& ctx, ConstTensor partials, int64_t count, ConstTensor bias,
                   ConstTensor residual, Tensor out) {
    check_fold_partials(partials, count, bias, residual, out);
    if (out.size() == 0) return;
    with_element_type(out.dtype, [&]<typename T>() {
        const auto fold = [&]<int kCount>() {
            launch(ctx, fold_partials_kernel<T, kCount>, blocks_for(out.rows, 1), kThreads,
                   partials.as<T>(), out.rows * partials.stride, partials.stride, count,
                   bias.as<T>(), residual.as<T>(), residual.stride, out.as<T>(), out.stride,
                   out.rows, out.cols);
        };
        with_vectors<widest<T>()>(fold, partials, bias, residual, out);
    });
}

}  // namespace vocabpipe::kernels::cuda
