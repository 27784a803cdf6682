// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "vocabpipe/error.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels {

/// The upper half of an fp32: 8 bits of exponent, 8 bits of precision (unit roundoff 2^-8 =
/// 0.0039).
struct Bf16 {
    uint16_t bits;
};
static_assert(sizeof(Bf16) == 2);

[[nodiscard]] inline float to_float(float value) {
    return value;
}
[[nodiscard]] inline float to_float(Bf16 value) {
    return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

/// Rounds to nearest, ties to even; overflow gives infinity, NaN stays NaN. Branch-free.
[[nodiscard]] inline Bf16 to_bf16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet_nan = (bits >> 16) | 0x40U;
    return {static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded)};
}

/// T is float or Bf16.
template <typename T>
[[nodiscard]] inline T from_float(float value) {
    if constexpr (std::is_same_v<T, Bf16>) {
        return to_bf16(value);
    } else {
        return value;
    }
}

template <typename T>
inline constexpr DType dtype_of = std::is_same_v<T, Bf16>    ? DType::bf16
                                  : std::is_same_v<T, float> ? DType::fp32
                                                             : DType::fp64;

/// Calls function.template operator()<T>() with the storage type of a host tensor. fp64 is for the
/// reference kernels only.
template <typename Function>
void with_type(DType type, Function&& function) {
    switch (type) {
        case DType::fp32:
            return function.template operator()<float>();
        case DType::bf16:
            return function.template operator()<Bf16>();
        case DType::fp64:
            break;
    }
    throw UsageError("host kernels take fp32 and bf16 tensors; fp64 is for the reference kernels");
}

}  // namespace vocabpipe::kernels
