// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace vocabpipe {

/// The value of an IEEE half with these bits.
[[nodiscard]] inline float number_of_half(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
    const uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) {  // infinity and NaN
        return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    }
    // Moves the exponent bias from 15 to 127: one product serves normal and subnormal numbers.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
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
