// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// Whether this CPU has the instructions of our own kernels for a type, those of bf16 with its dot
/// products, and this program was compiled with them.
[[nodiscard]] bool has_avx512(DType type);

}  // namespace vocabpipe::kernels::host
