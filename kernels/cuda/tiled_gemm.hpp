// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/call_site.hpp"
#include "kernels/cuda/gemm.hpp"

namespace vocabpipe::kernels::cuda {

/// Any product without epilogue, for every shape, stride, alignment and mixture of fp32 and bf16,
/// at a fraction of cuBLASLt's speed. Sums are in fp32, k ascending.
void tiled_gemm(CallSite ctx, const Product& product);

}  // namespace vocabpipe::kernels::cuda
