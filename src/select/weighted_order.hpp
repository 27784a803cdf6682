// SPDX-License-Identifier: Apache-2.0
// A random order in which larger weights come earlier, in integers.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace vocabpipe {

namespace weighted_order_detail {

/// log2(1 + i / 256) in units of 2^-32: a bit for each squaring.
constexpr std::array<uint64_t, 257> logarithms() {
    __extension__ using Wide = unsigned __int128;
    std::array<uint64_t, 257> table{};
    for (size_t i = 0; i < 256; ++i) {
        Wide mantissa = Wide{256 + i} << 55;  // from 1 to 2, in units of 2^-63
        for (int bit = 0; bit < 32; ++bit) {
            mantissa = mantissa * mantissa >> 63;
            const auto one = static_cast<uint64_t>(mantissa >> 64);
            table[i] = table[i] << 1 | one;
            mantissa >>= one;
        }
    }
    table[256] = uint64_t{1} << 32;
    return table;
}

inline constexpr std::array<uint64_t, 257> kLogarithms = logarithms();

}  // namespace weighted_order_detail

/// -log2(hash / 2^64) in units of 2^-32, from 0 to 2^38, by a table and straight lines between its
/// entries. Integers give every machine the same order, which libraries of mathematics do not.
[[nodiscard]] constexpr uint64_t exponential_of(uint64_t hash) {
    const auto& table = weighted_order_detail::kLogarithms;
    hash |= 1;  // 0 has no logarithm
    const int shift = std::countl_zero(hash);
    const uint64_t mantissa = hash << shift;
    const auto at = static_cast<size_t>(mantissa >> 55 & 0xFF);
    const uint64_t rest = mantissa >> 23 & 0xFFFFFFFF;
    const uint64_t fraction = table[at] + ((table[at + 1] - table[at]) * rest >> 32);
    return (static_cast<uint64_t>(shift + 1) << 32) - fraction;
}

/// The place of an item in an order that draws one item after the other, each time with chances in
/// proportion to the weights of those that are left: items sorted by -log(random) / weight
/// (Efraimidis and Spirakis 2006). Items of weight 0 come last. `weight`: at least 0; `hash`:
/// random.
[[nodiscard]] constexpr uint64_t weighted_order(uint64_t hash, int32_t weight) {
    constexpr int kUnits = 25;  // as many as fit beside the 39 bits of exponential_of()
    if (weight == 0) return UINT64_MAX;
    return (exponential_of(hash) << kUnits) / static_cast<uint64_t>(weight);
}

}  // namespace vocabpipe
