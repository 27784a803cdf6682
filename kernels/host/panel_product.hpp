// SPDX-License-Identifier: Apache-2.0
// The host's matrix products: private to matmul.cpp. Ours because other libraries' sums depend on
// how a product is cut, and because oneDNN 2.6 is slower (docs/performance.md has figures).
//
// One fp32 term, or two bf16 terms, make a word of 32 bits. The right operand is packed into panels
// of 48 columns, a transposed left one into panels of a few rows. A tile of the result (8 rows and
// 48 columns with AVX-512, else 6 and 16) stays in registers for up to 768 terms, each of which is
// added by a fused multiply-add (bf16: two by a dot product); its sum is then added to c. So an
// element's sum has the same bits in every tile: they depend on k only, not on how rows and columns
// are cut, even into single rows or columns, nor, in fp32, on the instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/instruction_set.hpp"
#include "kernels/host/matmul.hpp"

namespace vocabpipe::kernels::host {

/// Whether panel_product() takes operands of a type: fp32 always, bf16 with its dot products.
[[nodiscard]] bool has_panels(InstructionSet set, DType ab_type);

// These require has_panels(), and `set` that this CPU has.

/// Bytes of memory for panels that panel_product() needs.
[[nodiscard]] int64_t panel_product_bytes(InstructionSet set, const MatmulShape& shape);

/// c = op(a) op(b) [+ bias] [+ c], as MatmulShape says; with fp32 operands, bias and c are fp32,
/// too. `memory`: panel_product_bytes() bytes, aligned to 64. Runs on the calling thread.
void panel_product(InstructionSet set, const MatmulShape& shape, const void* a, const void* b,
                   void* c, const void* bias, std::byte* memory);

}  // namespace vocabpipe::kernels::host
