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

/// Calls body(row, col) for the first element of every group of kCount neighbours that belongs to
/// this thread in a grid of map_shape().
template <int kCount, typename Body>
__device__ __forceinline__ void for_elements(int64_t rows, int64_t cols, const Body& body) {
    const int64_t first_row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
    const int64_t first_col = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
    const int64_t row_step = int64_t{gridDim.y} * blockDim.y;
    const int64_t col_step = int64_t{gridDim.x} * blockDim.x * kCount;
    for (int64_t row = first_row; row < rows; row += row_step) {
        for (int64_t col = first_col; col < cols; col += col_step) body(row, col);
    }
}

inline constexpr int kMapThreads = 256;

struct MapShape {
    dim3 grid, block;
};
[[nodiscard]] inline MapShape map_shape(int64_t rows, int64_t cols, int count) {
    const dim3 block = rows == 1 ? dim3(kMapThreads, 1) : dim3(kMapThreads / 4, 4);
    return {dim3(std::min(blocks_for(cols, int64_t{block.x} * count), 65536U),
                 std::min(blocks_for(rows, block.y), 65535U)),
            block};
}

/// Inputs and outputs may be the same memory: every thread reads an element's inputs before it
/// writes.
template <int kCount, typename Operation, typename Out, typename... In>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(Operation operation, int64_t rows, int64_t cols, Rows<Out> out,
               Rows<const In>... in) {
    for_elements<kCount>(rows, cols, [&](int64_t row, int64_t col) {
        Vector<kCount> result;
        const auto compute = [&](const auto&... values) {
            for (int i = 0; i < kCount; ++i) result[i] = operation(values[i]...);
        };
        compute(loaded<In, kCount>(in.data + row * in.stride + col)...);
        result.store(out.data + row * out.stride + col);
    });
}

/// operation(float...) returns the float that is stored. All tensors have out's shape; the template
/// types are those of the elements.
template <typename Out, typename... In, typename Operation, typename... Tensors>
void map(CallSite ctx, Operation operation, Tensor out, const Tensors&... in) {
    if (out.size() == 0) return;
    const auto dense = [](ConstTensor t) { return t.rows == 1 || t.stride == t.cols; };
    const bool flat = dense(out) && (dense(in) && ...);
    const auto view = [&](ConstTensor t) {
        return flat ? ConstTensor(t.data, 1, t.size(), t.dtype) : t;
    };
    const int64_t rows = flat ? 1 : out.rows;
    const int64_t cols = flat ? out.size() : out.cols;
    with_vectors<widest<Out, In...>()>(
        [&]<int kCount>() {
            const MapShape shape = map_shape(rows, cols, kCount);
            launch(ctx, map_kernel<kCount, Operation, Out, In...>, shape.grid, shape.block,
                   operation, rows, cols, Rows<Out>{out.as<Out>(), out.stride},
                   Rows<const In>{ConstTensor(in).as<In>(), ConstTensor(in).stride}...);
        },
        view(out), view(in)...);
}

}  // namespace vocabpipe::kernels::cuda
