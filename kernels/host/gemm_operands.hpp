// SPDX-License-Identifier: Apache-2.0
// How products are cut into parts: private to gemm.cpp and gemm_each.cpp.
#pragma once

#include <cstdint>

#include "kernels/host/gemm.hpp"
#include "kernels/host/matmul.hpp"

namespace vocabpipe::kernels::host {

/// FLOPs between polls of communication: about 8 ms at 250 GFLOP/s per thread.
inline constexpr double kFlopPerPart = 2e9;
/// A thread's share of c has at least this many rows and columns, and is cut at multiples of half
/// of it: less is not worth a thread, and row_product() would compute a single row.
inline constexpr int64_t kSmallestShare = 32;
/// Smaller products are not worth waking a team.
inline constexpr double kParallelFlop = 1e6;

/// Sums with an fp32 result are cut along k into parts of this many terms, so that communication
/// can be polled where c is too small to be cut. It depends on k only, because bits depend on it:
/// they are the same for shards and the whole, for all numbers of threads.
[[nodiscard]] inline int64_t terms_per_part(int64_t k) {
    return k > 16384 ? 8192 : k;
}

/// Boundary `index` of `parts` nearly equal shares of `length`.
[[nodiscard]] inline int64_t boundary(int64_t length, int64_t index, int64_t parts) {
    constexpr int64_t kMultiple = kSmallestShare / 2;
    return index == parts ? length : length * index / parts / kMultiple * kMultiple;
}

/// The rows [begin, begin + count) of op(t).
[[nodiscard]] inline ConstTensor op_rows(ConstTensor t, bool transposed, int64_t begin,
                                         int64_t count) {
    return transposed ? t.column_range(begin, count) : t.row_range(begin, count);
}
[[nodiscard]] inline ConstTensor op_columns(ConstTensor t, bool transposed, int64_t begin,
                                            int64_t count) {
    return op_rows(t, !transposed, begin, count);
}

/// The arguments of gemm().
struct Operands {
    ConstTensor a;
    bool transpose_a = false;
    ConstTensor b;
    bool transpose_b = false;
    Tensor c;
    bool accumulate = false;
    ConstTensor bias;

    [[nodiscard]] int64_t k() const { return transpose_a ? a.rows : a.cols; }
    [[nodiscard]] double flop() const {
        return 2.0 * static_cast<double>(c.size()) * static_cast<double>(k());
    }
    [[nodiscard]] Operands rows(int64_t begin, int64_t count) const {
        Operands part = *this;
        part.a = op_rows(a, transpose_a, begin, count);
        part.c = c.row_range(begin, count);
        return part;
    }
    [[nodiscard]] Operands columns(int64_t begin, int64_t count) const {
        Operands part = *this;
        part.b = op_columns(b, transpose_b, begin, count);
        part.c = c.column_range(begin, count);
        if (bias) part.bias = bias.column_range(begin, count);
        return part;
    }
    [[nodiscard]] Operands terms(int64_t begin, int64_t count) const {
        Operands part = *this;
        part.a = op_columns(a, transpose_a, begin, count);
        part.b = op_rows(b, transpose_b, begin, count);
        if (begin > 0) {
            part.accumulate = true;
            part.bias = {};
        }
        return part;
    }
    [[nodiscard]] MatmulShape shape() const {
        return {.m = c.rows,
                .n = c.cols,
                .k = k(),
                .a_stride = a.stride,
                .b_stride = b.stride,
                .c_stride = c.stride,
                .ab_type = a.dtype,
                .c_type = c.dtype,
                .bias_type = bias ? bias.dtype : DType::fp32,
                .transpose_a = transpose_a,
                .transpose_b = transpose_b,
                .accumulate = accumulate,
                .has_bias = static_cast<bool>(bias)};
    }
};

}  // namespace vocabpipe::kernels::host
