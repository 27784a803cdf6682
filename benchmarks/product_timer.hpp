// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/tensor.hpp"

#include <functional>

namespace vocabpipe::bench {

/// Seconds of one plain product c = op(a) op(b) on the device of the matrices: the median of
/// several runs.
using ProductTimer = std::function<double(ConstTensor a, bool transpose_a, ConstTensor b,
                                          bool transpose_b, Tensor c)>;

/// Times gemm() on `threads` threads.
[[nodiscard]] ProductTimer host_product_timer(int threads);
/// Times cuBLASLt by the GPU's own clock; only in programs built with CUDA. The device must outlive
/// it.
[[nodiscard]] ProductTimer cuda_product_timer(Device& device);

}  // namespace vocabpipe::bench
