// SPDX-License-Identifier: Apache-2.0
// Norms of rows: threads share a row, read it once and keep it in registers unless it is very long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace vocabpipe::kernels::cuda {

inline constexpr int kMostRowThreads = 512;
inline constexpr int kRowSlots =
    2;  ///< vectors per thread in registers: rows of up to 8192 (or 1024 unaligned)

/// Calls body(col, slot) for this thread's columns, kCount at a time; several threads share a row
/// of h. kSlots 0: any length, and slot is always 0.
template <int kCount, int kSlots, typename Body>
__device__ __forceinline__ void for_columns(int64_t h, unsigned thread, unsigned threads,
                                            const Body& body) {
    const int64_t step = int64_t{threads} * kCount;
    const int64_t first = int64_t{thread} * kCount;
    if constexpr (kSlots == 0) {
        for (int64_t col = first; col < h; col += step) body(col, 0);
    } else {
        for (int slot = 0; slot < kSlots; ++slot) {
            const int64_t col = first + slot * step;
            if (col < h) body(col, slot);
        }
    }
}

/// The same where all threads of a block share the row.
template <int kCount, int kSlots, typename Body>
__device__ __forceinline__ void for_columns(int64_t h, const Body& body) {
    for_columns<kCount, kSlots>(h, threadIdx.x, blockDim.x, body);
}

/// The vectors that a thread keeps; where kSlots is 0 it keeps none, and computes them again.
template <int kCount, int kSlots>
struct Kept {
    Vector<kCount> vectors[kSlots == 0 ? 1 : kSlots];

    template <typename Load>
    __device__ __forceinline__ const Vector<kCount>& get(int slot, const Load& load) {
        if constexpr (kSlots == 0) vectors[0] = load();
        return vectors[slot];
    }
};

/// Calls launcher.template operator()<kSlots>(threads) for a block per row.
template <int kCount, typename Launcher>
void with_row_shape(int64_t h, Launcher&& launcher) {
    const int64_t vectors = (h + kCount - 1) / kCount;
    const int64_t warps =
        (vectors + int64_t{kWarpThreads} * kRowSlots - 1) / (int64_t{kWarpThreads} * kRowSlots);
    const auto threads = static_cast<unsigned>(
        std::min<int64_t>(std::max<int64_t>(warps, 1) * kWarpThreads, kMostRowThreads));
    if (int64_t{threads} * kRowSlots >= vectors) {
        launcher.template operator()<kRowSlots>(threads);
    } else {
        launcher.template operator()<0>(threads);
    }
}

}  // namespace vocabpipe::kernels::cuda
