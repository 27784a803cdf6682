// SPDX-License-Identifier: Apache-2.0
// out = operation(in...) element by element.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace vocabpipe::kernels::cuda {

template <typename T>
struct Rows {
    T* data;
    int64_t stride;
};

/// In- and outputs may be the same memory: every thread reads an element's inputs before it writes.
template <typename Operation, int kCount, typename Out, typename... In>
__global__ void __launch_bounds__(256)
    map_kernel(int64_t rows, int64_t cols, Rows<Out> out, Rows<const In>... in) {
    const int64_t first_row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
    const int64_t first_col = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
    const int64_t row_step = int64_t{gridDim.y} * blockDim.y;
    const int64_t col_step = int64_t{gridDim.x} * blockDim.x * kCount;
    const auto read = [](const auto* at) {
        Vector<kCount> values;
        values.load(at);
        return values;
    };
    for (int64_t row = first_row; row < rows; row += row_step) {
        for (int64_t col = first_col; col < cols; col += col_step) {
            Vector<kCount> result;
            const auto compute = [&](const auto&... values) {
                for (int i = 0; i < kCount; ++i) result[i] = Operation::apply(values[i]...);
            };
            compute(read(in.data + row * in.stride + col)...);
            result.store(out.data + row * out.stride + col);
        }
    }
}

/// Operation::apply(float...) returns the float that is stored. All tensors have out's shape; the
/// types are those of the elements.
template <typename Operation, typename Out, typename... In, typename... Tensors>
void map(Context& ctx, Tensor out, const Tensors&... in) {
    if (out.size() == 0) return;
    const auto dense = [](ConstTensor t) { return t.rows == 1 || t.stride == t.cols; };
    const bool flat = dense(out) && (dense(in) && ...);
    const auto view = [&](ConstTensor t) {
        return flat ? ConstTensor(t.data, 1, t.size(), t.dtype) : t;
    };
    const int64_t rows = flat ? 1 : out.rows;
    const int64_t cols = flat ? out.size() : out.cols;
    with_vectors(
        [&]<int kCount>() {
            const dim3 block = flat ? dim3(256, 1) : dim3(64, 4);
            const dim3 grid(std::min(blocks_for(cols, int64_t{block.x} * kCount), 65536U),
                            std::min(blocks_for(rows, block.y), 65535U));
            launch(ctx, map_kernel<Operation, kCount, Out, In...>, grid, block, rows, cols,
                   Rows<Out>{out.as<Out>(), out.stride},
                   Rows<const In>{ConstTensor(in).as<In>(), ConstTensor(in).stride}...);
        },
        view(out), view(in)...);
}

}  // namespace vocabpipe::kernels::cuda
