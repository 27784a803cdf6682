// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/bf16.hpp"
#include "src/support/half.hpp"
#include "src/support/safetensors/format.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vocabpipe {

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
        work([bits](int64_t index) { return number_of_half(bits(index)); });
    }
}

}  // namespace vocabpipe
