// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// Whether this program was compiled with our own AVX-512 kernels for a type, and this CPU has
/// their instructions (for bf16 its dot products, too).
[[nodiscard]] bool has_avx512(DType type);

}  // namespace vocabpipe::kernels::host
