// SPDX-License-Identifier: Apache-2.0
// Matrix products on one thread, for operators that multiply many small blocks inside a parallel
// region. All others call gemm().
#pragma once

#include <cstdint>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

class Engine;

/// c (m, n) = op(a) (m, k) op(b) (k, n) [+ bias] [+ c]; strides are elements between stored rows.
struct MatmulShape {
    int64_t m = 0, n = 0, k = 0;
    int64_t a_stride = 0, b_stride = 0, c_stride = 0;
    DType ab_type = DType::fp32;
    DType c_type = DType::fp32;
    DType bias_type = DType::fp32;
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;
    bool has_bias = false;

    /// Rows and columns of an operand in memory.
    struct Stored {
        int64_t rows = 0, cols = 0;
    };
    [[nodiscard]] Stored stored_a() const { return transpose_a ? Stored{k, m} : Stored{m, k}; }
    [[nodiscard]] Stored stored_b() const { return transpose_b ? Stored{n, k} : Stored{k, n}; }
};

/// Whether products of a type run with AVX-512 (bf16: with its dot products).
[[nodiscard]] bool multiplies_with_avx512(const Engine& engine, DType type);

/// Multiplies on the calling thread; each thread of a team may do so at the same time. Operands of
/// bf16 are widened to fp32 where the CPU does not multiply them; fp32 operands have an fp32 c.
/// `thread` is 0 outside parallel regions, otherwise the caller's number in the team.
void run_matmul(Engine& engine, const MatmulShape& shape, int thread, const void* a, const void* b,
                void* c, const void* bias = nullptr);

}  // namespace vocabpipe::kernels::host
