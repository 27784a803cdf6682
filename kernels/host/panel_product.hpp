// SPDX-License-Identifier: Apache-2.0
// Matrix products with AVX-512, for bf16 with its dot products: private to matmul.cpp and
// matmul_run.cpp. Ours because oneDNN 2.6 runs at 0.6 to 0.9 of the peak where a is transposed (the
// weight gradient) or operands come from memory (all of them, in a step); docs/performance.md has
// both figures.
//
// One fp32 term, or two bf16 terms, make a word of 32 bits. The right operand is packed into panels
// of 48 columns, a transposed left one into panels of 16 rows. A tile of 8 rows and 48 columns
// stays in 24 registers for up to 768 terms, whose sum is then added to c. So an element's sum has
// the same bits in every tile: they depend on k only, not on how rows and columns are cut, even
// into single rows or columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/matmul.hpp"

namespace vocabpipe::kernels::host {

// These require has_avx512(ab_type).

/// Bytes of memory for panels that panel_product() needs.
[[nodiscard]] int64_t panel_product_bytes(const MatmulShape& shape);

/// c = op(a) op(b) [+ bias] [+ c], as MatmulShape says; with fp32 operands, bias and c are fp32,
/// too. `memory`: panel_product_bytes() bytes, aligned to 64. Runs on the calling thread.
void panel_product(const MatmulShape& shape, const void* a, const void* b, void* c,
                   const void* bias, std::byte* memory);

}  // namespace vocabpipe::kernels::host
