// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/bf16.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::reference {

/// Reads an element of a tensor of any type.
[[nodiscard]] inline double get(ConstTensor tensor, int64_t row, int64_t col) {
    const int64_t index = row * tensor.stride + col;
    switch (tensor.dtype) {
        case DType::fp32:
            return tensor.as<float>()[index];
        case DType::bf16:
            return to_float(tensor.as<Bf16>()[index]);
        case DType::fp64:
            break;
    }
    return tensor.as<double>()[index];
}

/// Writes an element of a tensor of any type, rounded to nearest.
inline void set(Tensor tensor, int64_t row, int64_t col, double value) {
    const int64_t index = row * tensor.stride + col;
    switch (tensor.dtype) {
        case DType::fp32:
            tensor.as<float>()[index] = static_cast<float>(value);
            return;
        case DType::bf16:
            tensor.as<Bf16>()[index] = to_bf16(static_cast<float>(value));
            return;
        case DType::fp64:
            tensor.as<double>()[index] = value;
            return;
    }
}

/// The initial value of an accumulating operator.
[[nodiscard]] inline double start(ConstTensor tensor, int64_t row, int64_t col, bool accumulate) {
    return accumulate ? get(tensor, row, col) : 0.0;
}

}  // namespace vocabpipe::kernels::reference
