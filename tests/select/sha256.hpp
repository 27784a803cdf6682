// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace vocabpipe::testing {

/// FIPS 180-4, in hexadecimal digits.
inline std::string sha256(std::string text) {
    // The first 32 bits of the fractional parts of cube roots and square roots of primes.
    const auto fraction = [](uint32_t prime, int root) {
        // The largest r with r^root <= prime * 2^(32 root), modulo 2^32.
        using Wide = unsigned long long;
        Wide low = 0;
        Wide high = Wide{32} << 32;
        const auto fits = [&](Wide x) {
            // x^root <= prime << (32 * root), in pieces of 32 bits
            std::array<uint32_t, 8> product{1};
            for (int i = 0; i < root; ++i) {
                std::array<uint32_t, 8> next{};
                for (size_t a = 0; a < 6; ++a) {
                    Wide carry = 0;
                    const Wide x_low = x & 0xFFFFFFFF;
                    carry = Wide{product[a]} * x_low;
                    size_t at = a;
                    while (carry != 0 && at < next.size()) {
                        carry += next[at];
                        next[at++] = static_cast<uint32_t>(carry);
                        carry >>= 32;
                    }
                    carry = Wide{product[a]} * (x >> 32);
                    at = a + 1;
                    while (carry != 0 && at < next.size()) {
                        carry += next[at];
                        next[at++] = static_cast<uint32_t>(carry);
                        carry >>= 32;
                    }
                }
                product = next;
            }
            std::array<uint32_t, 8> limit{};
            limit[static_cast<size_t>(root)] = prime;
            for (size_t i = product.size(); i-- > 0;) {
                if (product[i] != limit[i]) return product[i] < limit[i];
            }
            return true;
        };
        while (low < high) {
            const Wide middle = low + (high - low + 1) / 2;
            fits(middle) ? low = middle : high = middle - 1;
        }
        return static_cast<uint32_t>(low);
    };
    std::array<uint32_t, 64> constants{};
    std::array<uint32_t, 8> state{};
    size_t primes = 0;
    for (uint32_t n = 2; primes < constants.size(); ++n) {
        bool prime = true;
        for (uint32_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
        if (!prime) continue;
        if (primes < state.size()) state[primes] = fraction(n, 2);
        constants[primes++] = fraction(n, 3);
    }
    const uint64_t bits = text.size() * 8;
    text += '\x80';
    while (text.size() % 64 != 56) text += '\0';
    for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift);
    for (size_t block = 0; block < text.size(); block += 64) {
        std::array<uint32_t, 64> w{};
        for (size_t i = 0; i < 64; ++i) {
            w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(text[block + i]);
        }
        for (size_t i = 16; i < 64; ++i) {
            const uint32_t a = w[i - 15];
            const uint32_t b = w[i - 2];
            w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
                   (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
        }
        auto [a, b, c, d, e, f, g, h] = state;
        for (size_t i = 0; i < 64; ++i) {
            const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + constants[i] + w[i];
            const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                                ((a & b) ^ (a & c) ^ (b & c));
            h = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
        const std::array<uint32_t, 8> added{a, b, c, d, e, f, g, h};
        for (size_t i = 0; i < state.size(); ++i) state[i] += added[i];
    }
    std::string digits;
    for (const uint32_t word : state) {
        for (int shift = 28; shift >= 0; shift -= 4)
            digits += "0123456789abcdef"[word >> shift & 15];
    }
    return digits;
}

}  // namespace vocabpipe::testing
