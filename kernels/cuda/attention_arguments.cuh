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
    int seq_length, heads, kv_heads, head_size;
    int window;                    ///< seq_length if there is none
    const int32_t* first_visible;  ///< (N), or null: 0 for all
    bool capped;
    float factor, inner, scale;

    static constexpr float kLog2E = 1.44269504F;

    AttentionScores(const AttentionShape& shape, std::span<const int32_t> mask)
        : seq_length(static_cast<int>(shape.seq_length)),
          heads(static_cast<int>(shape.heads)),
          kv_heads(static_cast<int>(shape.kv_heads)),
          head_size(static_cast<int>(shape.head_size)),
          window(static_cast<int>(shape.window > 0 ? std::min(shape.window, shape.seq_length)
                                                   : shape.seq_length)),
          first_visible(mask.empty() ? nullptr : mask.data()),
          capped(shape.softcap > 0),
          scale(shape.scale > 0 ? shape.scale
                                : 1.0F / std::sqrt(static_cast<float>(shape.head_size))) {
        factor = capped ? shape.softcap : scale;
        inner = capped ? scale / shape.softcap : 0.0F;
    }

    /// Query heads that read one head of keys.
    [[nodiscard]] __host__ __device__ int sharers() const { return heads / kv_heads; }
    /// The first key that a query of a sequence sees; the last one is its own.
    [[nodiscard]] __device__ __forceinline__ int first_key(int sequence, int query) const {
        const int by_window = query + 1 - window;
        const int by_document =
            first_visible == nullptr ? 0 : first_visible[int64_t{sequence} * seq_length + query];
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

/// Heads that lie next to each other in the columns of rows, one row per token.
template <typename T>
struct Heads {
    T* data;
    int64_t stride;

    /// Token `row` of a sequence's head, at column `col` of the head.
    [[nodiscard]] __device__ __forceinline__ T* at(const AttentionScores& s, int sequence, int head,
                                                   int row, int col) const {
        return data + (int64_t{sequence} * s.seq_length + row) * stride +
               int64_t{head} * s.head_size + col;
    }
    /// The part of a tile that starts there.
    template <int kRows, int kCols>
    [[nodiscard]] __device__ __forceinline__ Part<std::remove_const_t<T>> part(
        const AttentionScores& s, int sequence, int head, int row, int col) const {
        return {at(s, sequence, head, row, col), stride, min(kRows, s.seq_length - row),
                min(kCols, s.head_size - col)};
    }
};

/// Columns q | k | v of qkv or dqkv.
template <typename T>
struct Projections {
    Heads<T> q, k, v;

    Projections(T* data, int64_t stride, const AttentionShape& shape)
        : q{data, stride},
          k{data + shape.query_columns(), stride},
          v{data + shape.query_columns() + shape.kv_columns(), stride} {}
};

/// Whether all heads of tensors can be read 16 bytes at a time.
template <typename T, typename... Tensors>
[[nodiscard]] bool heads_are_aligned(const AttentionShape& shape, const Tensors&... tensors) {
    constexpr int64_t count = 16 / sizeof(T);
    const auto aligned = [](ConstTensor t) {
        return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride % count == 0;
    };
    return shape.head_size % count == 0 && (aligned(tensors) && ...);
}

/// Calls function.template operator()<T, kCols>() with the columns of a head that a block works on
/// at a time; a wider head is cut into such pieces.
template <typename Function>
void with_attention_tiles(DType type, const AttentionShape& shape, Function&& function) {
    with_element_type(type, [&]<typename T>() {
        if (shape.head_size <= 16) return function.template operator()<T, 16>();
        if constexpr (sizeof(T) == 2) {
            if (shape.head_size > 64) return function.template operator()<T, 128>();
        }
        return function.template operator()<T, 64>();
    });
}

/// A block for each tile of rows of each of `heads` heads of each sequence, and in the second
/// dimension for each piece of kCols columns.
[[nodiscard]] inline dim3 attention_grid(const AttentionShape& shape, int64_t heads, int cols) {
    const int64_t tiles = (shape.seq_length + kAttentionRows - 1) / kAttentionRows;
    return dim3(static_cast<unsigned>(tiles * heads * shape.sequences),
                static_cast<unsigned>((shape.head_size + cols - 1) / cols));
}

}  // namespace vocabpipe::kernels::cuda
