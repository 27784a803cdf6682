// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace vocabpipe {

/// The value of an IEEE half with these bits.
[[nodiscard]] inline float number_of_half(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
    const uint32_t exponent = bits >> 10 & 31U;
    const uint32_t fraction = bits & 1023U;
    if (exponent == 0) {
        const float size = static_cast<float>(fraction) * 0x1p-24F;
        return sign != 0 ? -size : size;
    }
    // 112: the difference of the two exponents' biases.
    const uint32_t wide = exponent == 31 ? 255U : exponent + 112;
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// The bits of the half that is nearest to `number`, of two the even one; infinity from 65520 on.
[[nodiscard]] inline uint16_t half_of_number(float number) {
    const auto bits = std::bit_cast<uint32_t>(number);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
    const float size = std::abs(number);
    if (std::isnan(number)) return sign | 0x7e00U;
    if (size >= 65520.0F) return sign | 0x7c00U;
    if (size < 0x1p-14F) {
        return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24F)));
    }
    const uint32_t whole = bits & 0x7fffffffU;
    const uint32_t rounded = whole + 0xfffU + (whole >> 13 & 1U);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

}  // namespace vocabpipe
