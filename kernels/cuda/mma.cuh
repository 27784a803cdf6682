// SPDX-License-Identifier: Apache-2.0
// Tensor-core products of bf16 with fp32 sums, and the loads that feed them: instructions that
// every GPU since sm_80 has. All 32 lanes of a warp call them together. Where an element lies is
// specified in the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and
// "ldmatrix"; with g = lane / 4 and t = lane % 4:
//
//   a  (16, 16)  a[0]: row g,     columns 2t, 2t + 1      a[2]: row g,     columns 2t + 8, 2t + 9
//                a[1]: row g + 8, columns 2t, 2t + 1      a[3]: row g + 8, columns 2t + 8, 2t + 9
//   b  (16, 8)   b[0]: rows 2t, 2t + 1 of column g        b[1]: rows 2t + 8, 2t + 9 of column g
//   c  (16, 8)   c[0], c[1]: row g, columns 2t, 2t + 1    c[2], c[3]: row g + 8, the same columns
//
// A word holds two bf16, the first one in its low half.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace vocabpipe::kernels::cuda {

/// c += a b
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
#ifdef __CUDACC__
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    cuda_stand_in::mma_m16n8k16(c, a, b0, b1);
#endif
}

/// Four (8, 8) matrices of 2-byte elements from shared memory: `row` of lane 8 i + r is the address
/// of row r of matrix i, 16-byte aligned. words[i] = row g of matrix i, columns 2t, 2t + 1; or, if
/// kTransposes, rows 2t, 2t + 1 of its column g.
template <bool kTransposes>
__device__ __forceinline__ void load_matrices(uint32_t (&words)[4], const void* row) {
#ifdef __CUDACC__
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    if constexpr (kTransposes) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address)
                     : "memory");
    }
#else
    cuda_stand_in::load_matrices(words, row, kTransposes);
#endif
}

/// Two numbers, rounded to bf16, as a word of a fragment.
__device__ __forceinline__ uint32_t bf16_pair(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    uint32_t word;
    memcpy(&word, &pair, sizeof(word));
    return word;
}

}  // namespace vocabpipe::kernels::cuda
