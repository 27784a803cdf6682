// SPDX-License-Identifier: Apache-2.0
// For files that are compiled for AVX-512 on any machine, each of which gets its own copy.
#pragma once

#include <immintrin.h>

namespace vocabpipe::kernels::host {
namespace {

/// exp(x), relative error 2^-23 + 1.25 x 2^-24 |x|, and 1 for 0; -inf gives 0, NaN stays NaN.
__m512 exp(__m512 x) {
    constexpr int kFloor = 1;
    const __m512 y = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341F));
    const __m512 r = _mm512_reduce_ps(y, kFloor);  // y - floor(y)
    __m512 p = _mm512_set1_ps(2.161291495e-04F);   // 2^r: minimax for the relative error, p(0) = 1
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.246784645e-03F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.675451567e-03F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.548528062e-02F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402293056e-01F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931470444e-01F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
    return _mm512_scalef_ps(p, y);  // by 2^floor(y)
}

}  // namespace
}  // namespace vocabpipe::kernels::host
