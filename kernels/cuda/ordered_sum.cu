// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

/// A block of threads per row.
template <typename In, typename Out, int kCount>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const In* __restrict__ blocks, int64_t block_stride, int64_t stride, int64_t count,
                int64_t own, Out* __restrict__ out, int64_t out_stride, int64_t rows,
                int64_t cols) {
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const In* const first = blocks + row * stride;
        Out* const to = out + row * out_stride;
        const auto part = [&](int64_t block) -> const In* {
            if constexpr (std::is_same_v<In, Out>) {
                if (block == own) return to;
            }
            return first + block * block_stride;
        };
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> sum;
            sum.load(part(0) + col);
            for (int64_t block = 1; block < count; ++block) {
                Vector<kCount> next;
                next.load(part(block) + col);
                for (int i = 0; i < kCount; ++i) sum[i] += next[i];
            }
            sum.store(to + col);
        }
    }
}

}  // namespace

void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, int64_t own, Tensor out) {
    require(count >= 1, "at least one block");
    require(has_shape(blocks, count * out.rows, out.cols), "blocks of shape (count rows, cols)");
    require(own < count && (own < 0 || blocks.dtype == out.dtype), "an own block of one type");
    if (out.size() == 0) return;
    with_element_type(blocks.dtype, [&]<typename In>() {
        with_element_type(out.dtype, [&]<typename Out>() {
            const auto add = [&]<int kCount>() {
                launch(ctx, fold_kernel<In, Out, kCount>, blocks_for(out.rows, 1), kThreads,
                       blocks.as<In>(), out.rows * blocks.stride, blocks.stride, count, own,
                       out.as<Out>(), out.stride, out.rows, out.cols);
            };
            with_vectors<widest<In, Out>()>(add, blocks, out);
        });
    });
}

}  // namespace vocabpipe::kernels::cuda
