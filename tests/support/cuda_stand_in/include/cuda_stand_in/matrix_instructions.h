// SPDX-License-Identifier: Apache-2.0
#pragma once

// PTX instructions that the kernels write as inline assembly under nvcc (kernels/cuda/mma.cuh). All
// lanes of a warp hand their operands in, then each takes what the PTX ISA says is its own.

#include <cstdint>

namespace cuda_stand_in {

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: c += a b, one sum per element in the order
/// of its terms. Hardware adds them in an order, and with a rounding, of its own.
void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

/// Ends the process if a row of ldmatrix is not aligned to 16 bytes.
void require_aligned_row(const void* row);
/// What ldmatrix gives a lane whose row this is.
void exchange_rows(uint32_t (&words)[4], const void* row, bool transposes);

/// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16
static inline void load_matrices(uint32_t (&words)[4], const void* row, bool transposes) {
    require_aligned_row(row);
#ifdef CUDA_STAND_IN_CHECKS_ACCESSES
    // The instruction's reads, which the compiler is to see where it looks at others.
    (void)static_cast<const volatile uint64_t*>(row)[0];
    (void)static_cast<const volatile uint64_t*>(row)[1];
#endif
    exchange_rows(words, row, transposes);
}

}  // namespace cuda_stand_in
