// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of both directions, and which keys a query sees.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cuda/attention_tiles.cuh"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// A score is factor * (q k), or factor * tanh(inner * q k) if it is capped. Sizes within a
/// sequence fit int.
struct AttentionScores {
    int queries, seq_length, heads, kv_heads;
    /// The token of a sequence that is its first query. Queries that are not causal count as tokens
    /// from the last key on, with a window that is long enough for all of them to see every key.
    int first_query;
    int window;                    ///< seq_length or more if there is none
    const int32_t* first_visible;  ///< of all queries, or null: 0
    bool capped;
    float factor, inner, scale;

    static constexpr float kLog2E = 1.44269504F;

    AttentionScores(const AttentionShape& shape, std::span<const int32_t> mask)
        : queries(static_cast<int>(shape.query_count())),
          seq_length(static_cast<int>(shape.seq_length)),
          heads(static_cast<int>(shape.heads)),
          kv_heads(static_cast<int>(shape.kv_heads)),
          first_query(static_cast<int>(shape.causal ? shape.first_query() : shape.seq_length - 1)),
          window(static_cast<int>(shape.window > 0 ? std::min(shape.window, shape.seq_length)
                                                   : first_query + shape.query_count())),
          first_visible(mask.empty() ? nullptr : mask.data()),
          capped(shape.softcap > 0),
          scale(shape.scale > 0 ? shape.scale
                                : 1.0F / std::sqrt(static_cast<float>(shape.head_size))) {
        factor = capped ? shape.softcap : scale;
        inner = capped ? scale / shape.softcap : 0.0F;
    }

    /// Query heads that read one head of keys.
    [[nodiscard]] __host__ __device__ int sharers() const { return heads / kv_heads; }
    /// The first key that query `row` of a sequence sees, or less; the last one is its own, or the
    /// last of all.
    [[nodiscard]] __device__ __forceinline__ int first_key(int sequence, int row) const {
        const int by_window = first_query + row + 1 - window;
        const int by_document =
            first_visible == nullptr ? 0 : first_visible[int64_t{sequence} * queries + row];
        return by_document > by_window ? by_document : by_window;
    }
    /// Turns products q k into scores without the factor.
    template <int kCount>
    __device__ __forceinline__ void cap(float (&products)[kCount][4]) const {
        if (!capped) return;
#pragma unroll
        for (int n = 0; n < kCount; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) products[n][i] = tanhf(inner * products[n][i]);
        }
    }
};

/// Heads that lie next to each other in the columns of rows, one row per query or per key.
template <typename T>
struct Heads {
    T* data;
    int64_t stride;
    int rows;  ///< of a sequence
    int size;  ///< columns of a head

    /// Row `row` of a sequence's head, at column `col` of the head.
    [[nodiscard]] __device__ __forceinline__ T* at(int sequence, int head, int row, int col) const {
        return data + (int64_t{sequence} * rows + row) * stride + int64_t{head} * size + col;
    }
    /// The part of a tile that starts there; without columns beyond the head.
    template <int kRows, int kCols>
    [[nodiscard]] __device__ __forceinline__ Part<std::remove_const_t<T>> part(int sequence,
                                                                               int head, int row,
                                                                               int col) const {
        return {at(sequence, head, row, col), stride, min(kRows, rows - row),
                min(kCols, size - col)};
    }
};

template <typename T, typename Pointer>
[[nodiscard]] Heads<T> query_heads(const BasicTensor<Pointer>& tensor,
                                   const AttentionShape& shape) {
    return {tensor.template as<std::remove_const_t<T>>(), tensor.stride,
            static_cast<int>(shape.query_count()), static_cast<int>(tensor.cols / shape.heads)};
}

/// q and k | v, or their gradients.
template <typename T>
struct Projections {
    Heads<T> q, k, v;

    template <typename Pointer>
    Projections(const BasicTensor<Pointer>& q_, const BasicTensor<Pointer>& kv,
                const AttentionShape& shape)
        : q(query_heads<T>(q_, shape)),
          k{kv.template as<std::remove_const_t<T>>(), kv.stride, static_cast<int>(shape.seq_length),
            static_cast<int>(shape.head_size)},
          v{k.data + shape.key_columns(), kv.stride, k.rows, static_cast<int>(shape.value_size())} {
    }
};

/// Whether all heads of tensors can be read 16 bytes at a time.
template <typename T, typename... Tensors>
[[nodiscard]] bool heads_are_aligned(const AttentionShape& shape, const Tensors&... tensors) {
    constexpr int64_t count = 16 / sizeof(T);
    const auto aligned = [](ConstTensor t) {
        return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride % count == 0;
    };
    return shape.head_size % count == 0 && shape.value_size() % count == 0 &&
           (aligned(tensors) && ...);
}

/// Columns of the wider of a head of keys and one of values.
[[nodiscard]] inline int64_t widest_head(const AttentionShape& shape) {
    return std::max(shape.head_size, shape.value_size());
}

/// Calls function.template operator()<T, kCols>() with the columns of a head that a block works on
/// at a time; a wider head is cut into such pieces.
template <typename Function>
void with_attention_tiles(DType type, const AttentionShape& shape, Function&& function) {
    with_element_type(type, [&]<typename T>() {
        if (widest_head(shape) <= 16) return function.template operator()<T, 16>();
        if constexpr (sizeof(T) == 2) {
            if (widest_head(shape) > 64) return function.template operator()<T, 128>();
        }
        return function.template operator()<T, 64>();
    });
}

/// A block for each tile of `rows` rows of each of `heads` heads of each sequence, and in the
/// second dimension for each piece of `cols` of the `size` columns of a head.
[[nodiscard]] inline dim3 attention_grid(const AttentionShape& shape, int64_t rows, int64_t heads,
                                         int64_t size, int cols) {
    const int64_t tiles = (rows + kAttentionRows - 1) / kAttentionRows;
    return dim3(static_cast<unsigned>(tiles * heads * shape.sequences),
                static_cast<unsigned>((size + cols - 1) / cols));
}

}  // namespace vocabpipe::kernels::cuda
