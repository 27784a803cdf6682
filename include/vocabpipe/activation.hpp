// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe::kernels {

/// The function that a feed-forward layer applies to every element.
enum class Activation : uint8_t {
    gelu_tanh,  ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): "gelu_new", "gelu_pytorch_tanh"
    silu,       ///< x / (1 + exp(-x))
    gelu,       ///< x Phi(x), Phi(x) = erfc(-x / sqrt(2)) / 2 of the normal distribution: "gelu"
};

}  // namespace vocabpipe::kernels
