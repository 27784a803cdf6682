// SPDX-License-Identifier: Apache-2.0
#include "src/support/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace vocabpipe {

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bit-reversed: the top bit stands for x^0
constexpr uint32_t kOne = 0x80000000;

/// [k][b]: contribution of byte b when k more bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t b = 0; b < 256; ++b) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kPolynomial : 0);
        tables[0][b] = crc;
    }
    for (size_t k = 1; k < tables.size(); ++k) {
        for (size_t b = 0; b < 256; ++b) {
            const uint32_t shorter = tables[k - 1][b];
            tables[k][b] = (shorter >> 8) ^ tables[0][shorter & 0xffU];
        }
    }
    return tables;
}

constexpr Tables kTables = make_tables();

uint64_t load8(const std::byte* at) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

/// a b modulo the polynomial.
uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) product ^= b;
        b = (b >> 1) ^ ((b & 1U) != 0 ? kPolynomial : 0);
    }
    return product;
}

/// x^(8 bytes) modulo the polynomial, by squaring.
uint32_t shift_by(uint64_t bytes) {
    uint32_t result = kOne;
    uint32_t power = kOne >> 8;  // x^8
    for (; bytes != 0; bytes >>= 1) {
        if ((bytes & 1U) != 0) result = multiply(result, power);
        power = multiply(power, power);
    }
    return result;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_in_hardware(std::span<const std::byte> bytes,
                                                              uint32_t before) {
    uint64_t crc = ~before;
    const std::byte* at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) crc = _mm_crc32_u64(crc, load8(at));
    auto rest = static_cast<uint32_t>(crc);
    for (; left > 0; --left, ++at) rest = _mm_crc32_u8(rest, static_cast<uint8_t>(*at));
    return ~rest;
}
#endif

}  // namespace

uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before) {
    uint32_t crc = ~before;
    const std::byte* at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        const uint64_t word = load8(at) ^ crc;
        crc = 0;
        for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xffU];
    }
    for (; left > 0; --left, ++at) {
        crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint8_t>(*at)) & 0xffU];
    }
    return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return crc32c_in_hardware(bytes, before);
#endif
    return crc32c_by_tables(bytes, before);
}

uint32_t crc32c_combine(uint32_t a, uint32_t b, uint64_t bytes_of_b) {
    return multiply(shift_by(bytes_of_b), a) ^ b;
}

}  // namespace vocabpipe
