// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/bf16.hpp"
#include "src/support/safetensors/format.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vocabpipe {

[[nodiscard]] inline float from_half(uint16_t half) {
    const uint32_t sign = (half & 0x8000U) << 16;
    const uint32_t magnitude = half & 0x7fffU;
    if (magnitude >= 0x7c00U) {  // infinity and NaN
        return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    }
    // Moves the exponent bias from 15 to 127: one product serves normal and subnormal numbers.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

/// Calls `work` with a function from an index to the element there. `data`: F32, BF16 or F16, which
/// need not be aligned.
template <typename Work>
void with_elements(StoredType type, const std::byte* data, const Work& work) {
    const auto bits = [data](int64_t index) {
        uint16_t value;
        std::memcpy(&value, data + index * 2, sizeof value);
        return value;
    };
    if (type == StoredType::F32) {
        work([data](int64_t index) {
            float value;
            std::memcpy(&value, data + index * 4, sizeof value);
            return value;
        });
    } else if (type == StoredType::BF16) {
        work([bits](int64_t index) { return kernels::to_float(kernels::Bf16{bits(index)}); });
    } else {
        work([bits](int64_t index) { return from_half(bits(index)); });
    }
}

}  // namespace vocabpipe
