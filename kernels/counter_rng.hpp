// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

/// Counter-based normal numbers: element i of parameter `parameter_id` is a function of (seed,
/// parameter_id, i) only, so every rank draws its rows of the whole matrix, for any number of
/// ranks, without drawing the others.
///
/// Philox4x32-10 (Salmon et al., SC 2011) with the seed as key encrypts the counter (i / 4,
/// parameter_id) into four 32-bit words w; two Box-Muller pairs turn them into four normals:
///
///     r = sqrt(-2 log u(w0)), t = 2 pi u(w1): r cos t, r sin t; the same with w2, w3
///     u(w) = (w + 1/2) / 2^32, in (0, 1): |normal| < 6.8
namespace vocabpipe::kernels {

/// Ten rounds of Philox4x32.
[[nodiscard]] constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                                       std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t left = uint64_t{0xD2511F53} * counter[0];
        const uint64_t right = uint64_t{0xCD9E8D57} * counter[2];
        counter = {
            static_cast<uint32_t>(right >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(right),
            static_cast<uint32_t>(left >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(left)};
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return counter;
}

/// u of words 4 block .. 4 block + 3 of one parameter: uniform in (0, 1).
[[nodiscard]] inline std::array<double, 4> uniform_block(uint64_t seed, uint64_t parameter_id,
                                                         uint64_t block) {
    const auto words =
        philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                static_cast<uint32_t>(parameter_id), static_cast<uint32_t>(parameter_id >> 32)},
               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    std::array<double, 4> numbers{};
    for (size_t i = 0; i < 4; ++i) numbers[i] = (words[i] + 0.5) * 0x1p-32;
    return numbers;
}

/// Standard normals 4 block .. 4 block + 3 of one parameter.
[[nodiscard]] inline std::array<double, 4> normal_block(uint64_t seed, uint64_t parameter_id,
                                                        uint64_t block) {
    const auto uniform = uniform_block(seed, parameter_id, block);
    std::array<double, 4> normals{};
    for (size_t pair = 0; pair < 4; pair += 2) {
        const double radius = std::sqrt(-2 * std::log(uniform[pair]));
        const double angle = 2 * std::numbers::pi * uniform[pair + 1];
        normals[pair] = radius * std::cos(angle);
        normals[pair + 1] = radius * std::sin(angle);
    }
    return normals;
}

}  // namespace vocabpipe::kernels
