// SPDX-License-Identifier: Apache-2.0
// The only source of chance in data selection: pure functions, so that what is drawn does not
// depend on how samples are spread over ranks.
#pragma once

#include <cstdint>

namespace vocabpipe {

/// One step of Steele, Lea and Flood's SplitMix64: a bijection of 64-bit numbers.
[[nodiscard]] constexpr uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/// Of three numbers; for given seed and a, different b have different hashes.
[[nodiscard]] constexpr uint64_t hash_of(uint64_t seed, uint64_t a, uint64_t b) {
    return splitmix64(splitmix64(splitmix64(seed) ^ a) ^ b);
}

}  // namespace vocabpipe
