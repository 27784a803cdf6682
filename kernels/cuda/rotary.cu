// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/attention_checks.hpp"
#include "kernels/check.hpp"
#include "kernels/cuda/map.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

/// Rotates in place. A thread takes kCount neighbours of the lower half of a head's rotated columns
/// and their partners in the upper half. Columns count the lower halves of all heads. direction: 1
/// rotates, -1 rotates back.
template <int kCount, typename T>
__global__ void __launch_bounds__(kMapThreads)
    rotate_kernel(int64_t rows, int64_t cols, Rows<T> qkv, Rows<const float> table,
                  uint32_t seq_length, uint32_t head_size, uint32_t half, float direction) {
    for_elements<kCount>(rows, cols, [&](int64_t row, int64_t col) {
        const uint32_t head = static_cast<uint32_t>(col) / half;
        const uint32_t position = static_cast<uint32_t>(row) % seq_length;
        const int64_t pair = col - int64_t{head} * half;
        const float* angles = table.data + position * table.stride + pair;
        const auto c = loaded<float, kCount>(angles);
        const auto s = loaded<float, kCount>(angles + half);
        T* low = qkv.data + row * qkv.stride + int64_t{head} * head_size + pair;
        const auto a = loaded<T, kCount>(low);
        const auto b = loaded<T, kCount>(low + half);
        Vector<kCount> rotated_a, rotated_b;
        for (int i = 0; i < kCount; ++i) {
            rotated_a[i] = a[i] * c[i] - direction * s[i] * b[i];
            rotated_b[i] = b[i] * c[i] + direction * s[i] * a[i];
        }
        rotated_a.store(low);
        rotated_b.store(low + half);
    });
}

void rotate(CallSite ctx, ConstTensor table, const AttentionShape& shape, float direction,
            Tensor qkv) {
    const int64_t half = table.cols / 2;
    const int64_t cols = (shape.heads + shape.kv_heads) * half;
    require_rotary(table, shape, qkv);
    require(qkv.rows <= 0xffffffff && cols <= 0xffffffff, "fewer than 2^32 rows and columns");
    if (qkv.rows == 0 || cols == 0) return;
    with_element_type(qkv.dtype, [&]<typename T>() {
        with_vectors(
            [&]<int kCount>() {
                const MapShape map = map_shape(qkv.rows, cols, kCount);
                launch(ctx, rotate_kernel<kCount, T>, map.grid, map.block, qkv.rows, cols,
                       Rows<T>{qkv.as<T>(), qkv.stride},
                       Rows<const float>{table.as<float>(), table.stride},
                       static_cast<uint32_t>(shape.seq_length),
                       static_cast<uint32_t>(shape.head_size), static_cast<uint32_t>(half),
                       direction);
            },
            qkv.column_range(0, shape.head_size), qkv.column_range(0, half),
            table.column_range(0, half));
    });
}

}  // namespace

void rotary_forward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor qkv) {
    rotate(ctx, table, shape, 1.0F, qkv);
}

void rotary_backward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor dqkv) {
    rotate(ctx, table, shape, -1.0F, dqkv);
}

}  // namespace vocabpipe::kernels::cuda
