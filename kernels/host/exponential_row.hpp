// SPDX-License-Identifier: Apache-2.0
// exp(z - m) of a row of logits with AVX-512: private to vocabulary.cpp. Compilers vectorise
// fast_exp(), too, but do not know the instructions that split a number and scale by a power of 2.
#pragma once

#include <cstdint>

namespace vocabpipe::kernels::host {

// These require has_avx512(set, DType::bf16).

struct ExponentialRow {
    float sum;           ///< of exp(z - m), not rounded
    float largest;       ///< maximum z; -infinity for none; ignores NaN, unlike sum
    float weighted = 0;  ///< of exp(z - m) (z - m), by exponential_row_for_entropy()
};

/// e = exp(z - m) as bf16; before rounding the relative error is at most 2^-23 + 1.25 x 2^-24 |z -
/// m|; -infinity gives exactly 0. Bits depend on z, m and count only.
ExponentialRow exponential_row(const float* z, float m, uint16_t* e, int64_t count);
/// The same, and the weighted sum.
ExponentialRow exponential_row_for_entropy(const float* z, float m, uint16_t* e, int64_t count);

}  // namespace vocabpipe::kernels::host
