// SPDX-License-Identifier: Apache-2.0
// The only randomness in data selection: pure functions, so that results do not depend on how
// samples are spread over ranks.
#pragma once

#include "vocabpipe/bounding_rule.hpp"

#include <cstdint>

namespace vocabpipe {

/// One step of Steele, Lea and Flood's SplitMix64: a bijection of 64-bit numbers.
[[nodiscard]] constexpr uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/// Hash of three numbers; for fixed seed and a, different b have different hashes.
[[nodiscard]] constexpr uint64_t hash_of(uint64_t seed, uint64_t a, uint64_t b) {
    return splitmix64(splitmix64(splitmix64(seed) ^ a) ^ b);
}

/// True with probability `heads`; every rank gets the same result for the ordered pair (a, b).
[[nodiscard]] constexpr bool coin(uint64_t seed, uint64_t a, uint64_t b, Fraction heads) {
    return (hash_of(seed, a, b) >> 32) * static_cast<uint64_t>(heads.denominator) <
           static_cast<uint64_t>(heads.numerator) << 32;
}

}  // namespace vocabpipe
