// SPDX-License-Identifier: Apache-2.0
// Matrix products of bf16 by the dot products of AVX512-BF16: private to matmul.cpp and
// matmul_run.cpp. Ours because oneDNN 2.6 runs at 0.6 to 0.87 of the peak where a is transposed
// (the weight gradient) or operands come from memory (the output layer); docs/performance.md has
// both.
//
// Two terms of a row or column make a word of 32 bits. The right operand is packed into panels of
// 48 columns, a transposed left one into panels of 16 rows. A tile of 8 rows and 48 columns stays
// in 24 registers for up to 768 terms, whose sum is then added to c. So an element's sum has the
// same bits in every tile: they depend on k alone, not on how rows and columns are cut, down to one
// of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/matmul.hpp"

namespace vocabpipe::kernels::host {

// Where has_avx512(bf16).

/// Bytes of memory for panels that panel_product() needs.
[[nodiscard]] int64_t panel_product_bytes(const MatmulShape& shape);

/// c = op(a) op(b) [+ bias] [+ c] of bf16 operands, as MatmulShape says; `memory` of
/// panel_product_bytes(), at a multiple of 64. Runs on the calling thread.
void panel_product(const MatmulShape& shape, const void* a, const void* b, void* c,
                   const void* bias, std::byte* memory);

}  // namespace vocabpipe::kernels::host
