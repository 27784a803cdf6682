// SPDX-License-Identifier: Apache-2.0
// The arrays in device memory that one launch for the products of all experts reads, and the
// kernels that write them. Only the device needs to know the row counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/tile_map.hpp"

namespace vocabpipe::kernels::cuda {

struct GroupSize {
    int32_t m, n, k;
};

/// One matrix per expert: that of expert e, whose rows begin at r, is at data + e per_expert + r
/// per_row.
struct GroupedOperand {
    std::byte* data = nullptr;
    int64_t per_expert = 0, per_row = 0;  ///< bytes
    int64_t stride = 0;                   ///< elements between rows
};

/// d = op(a) op(b) of every expert. Its number of rows is m, or k where `rows_are_terms`: that one
/// of the three sizes is not read here.
struct GroupedProblem {
    GroupedOperand a, b, d;
    int32_t m = 0, n = 0, k = 0;
    bool rows_are_terms = false;
};

/// One entry per expert, in device memory. An expert without rows has sizes of 0, also where rows
/// are terms: a launch skips it.
struct GroupedArrays {
    int32_t experts = 0;
    GroupSize* sizes = nullptr;
    const void **a = nullptr, **b = nullptr;
    void** d = nullptr;
    int64_t *a_stride = nullptr, *b_stride = nullptr, *d_stride = nullptr;

    /// Bytes of `memory` that at() needs, a multiple of 256.
    [[nodiscard]] static int64_t bytes(int64_t experts);
    /// Views into memory that is aligned to 16 bytes.
    [[nodiscard]] static GroupedArrays at(std::span<std::byte> memory, int64_t experts);
};

/// Enqueues the arrays of `problem` for these rows, which are read before it returns.
void prepare_groups(CallSite ctx, const GroupedProblem& problem, std::span<const RowRange> rows,
                    const GroupedArrays& arrays);

/// Enqueues d = 0, fp32, for every expert without rows in `arrays`, where rows are terms.
void clear_groups_without_rows(CallSite ctx, const GroupedProblem& problem,
                               const GroupedArrays& arrays);

}  // namespace vocabpipe::kernels::cuda
