// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>

namespace vocabpipe {

/// The number of a sample, below 2^40, in five bytes: structs of them have no gaps, so messages and
/// lists of them stay short. In memory and between ranks only; files have tensors.
class PackedId {
public:
    PackedId() = default;
    /// `id`: from 0 to 2^40 - 1.
    explicit PackedId(int64_t id) : high_(static_cast<uint8_t>(id >> 32)) {
        const auto low = static_cast<uint32_t>(id);
        std::memcpy(low_.data(), &low, sizeof low);
    }
    [[nodiscard]] int64_t value() const {
        uint32_t low = 0;
        std::memcpy(&low, low_.data(), sizeof low);
        return int64_t{high_} << 32 | low;
    }
    friend auto operator<=>(const PackedId& a, const PackedId& b) {
        return a.value() <=> b.value();
    }
    friend bool operator==(const PackedId& a, const PackedId& b) { return a.value() == b.value(); }

private:
    std::array<uint8_t, sizeof(uint32_t)> low_{};  // not a uint32_t, which would be aligned
    uint8_t high_ = 0;
};
static_assert(sizeof(PackedId) == 5);

}  // namespace vocabpipe
