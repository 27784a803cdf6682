// SPDX-License-Identifier: Apache-2.0
// bf16 matrices packed into words of two terms each: private to panel_product.cpp and
// attention_tiles.hpp, and compiled for AVX-512 as those are.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/host/panel_words.hpp"

namespace vocabpipe::kernels::host {
namespace {

constexpr int64_t kTerms = kWordTerms<DType::bf16>;

int64_t words_of(int64_t terms) {
    return words_of<DType::bf16>(terms);
}

/// The first `count` of a vector's lanes, or all.
__mmask16 first_lanes(int64_t count) {
    return count >= kLanes ? __mmask16{0xffff} : static_cast<__mmask16>((1U << count) - 1);
}

template <DType type>
__m512 load_floats(const std::byte* from, __mmask16 mask) {
    if constexpr (type == DType::bf16) {
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
    } else {
        return _mm512_maskz_loadu_ps(mask, from);
    }
}

template <DType type>
void store_floats(std::byte* to, __mmask16 mask, __m512 values) {
    if constexpr (type == DType::bf16) {
        _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
    } else {
        _mm512_mask_storeu_ps(to, mask, values);
    }
}

template <typename T>
T load(const std::byte* at) {
    T value;
    __builtin_memcpy(&value, at, sizeof(value));
    return value;
}

/// A matrix stored by rows, `stride` bytes apart.
struct Stored {
    const std::byte* data = nullptr;
    int64_t stride = 0;
};

/// Words of 16 columns of two rows; columns beyond `mask`, and a row that is null, are zeros.
__m512i words_of_columns(const std::byte* row, const std::byte* next, __mmask16 mask) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row));
    if (next == nullptr) return low;
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, next));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

struct Interleaved {
    __m512i first, second;
};
/// Words of 32 columns of two rows.
Interleaved interleave(__m512i row, __m512i next) {
    // Of 64 numbers, those of one row and of the next: 0, 32, 1, 33, ...
    const __m512i even =
        _mm512_set_epi32(0x002f000f, 0x002e000e, 0x002d000d, 0x002c000c, 0x002b000b, 0x002a000a,
                         0x00290009, 0x00280008, 0x00270007, 0x00260006, 0x00250005, 0x00240004,
                         0x00230003, 0x00220002, 0x00210001, 0x00200000);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(16));
    return {_mm512_permutex2var_epi16(row, even, next), _mm512_permutex2var_epi16(row, odd, next)};
}

/// Rows are terms: the words of 16 columns are at to + s width, for s = 0, 1, ..., those of the
/// next 16 columns `apart` words behind. Columns up to a multiple of 16 and an absent last term are
/// zeros.
void pack_by_rows(const Stored& from, int64_t terms, int64_t columns, Word* to, int64_t width,
                  int64_t apart) {
    const int64_t whole = columns / (2 * kLanes) * (2 * kLanes);
    for (int64_t term = 0; term < terms; term += kTerms, to += width) {
        const std::byte* const row = from.data + term * from.stride;
        const std::byte* const next = term + 1 < terms ? row + from.stride : nullptr;
        Word* out = to;
        int64_t j = 0;
        for (; next != nullptr && j < whole; j += 2 * kLanes, out += 2 * apart) {
            const __m512i low = _mm512_loadu_si512(row + j * 2);
            const __m512i high = _mm512_loadu_si512(next + j * 2);
            const Interleaved words = interleave(low, high);
            _mm512_store_si512(out, words.first);
            _mm512_store_si512(out + apart, words.second);
        }
        for (; j < columns; j += kLanes, out += apart) {
            const std::byte* const below = next == nullptr ? nullptr : next + j * 2;
            _mm512_store_si512(out, words_of_columns(row + j * 2, below, first_lanes(columns - j)));
        }
    }
}

/// Transposes 16 x 16 words in registers.
void transpose(__m512i (&x)[16]) {
    __m512i y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 16; i += 8) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0x88);
            y[i + j + 4] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0xdd);
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
        x[j] = _mm512_shuffle_i32x4(y[j], y[j + 8], 0x88);
        x[j + 8] = _mm512_shuffle_i32x4(y[j], y[j + 8], 0xdd);
    }
}

/// Terms are along the rows: what pack_by_rows() makes of the transposed matrix with `apart` of 16.
void pack_by_columns(const Stored& from, int64_t terms, int64_t columns, Word* to, int64_t width) {
    const int64_t pairs = terms / kTerms;
    const int64_t words = words_of(terms);
    for (int64_t j = 0; j < columns; j += kLanes) {
        const int64_t count = columns - j < kLanes ? columns - j : kLanes;
        const std::byte* const rows = from.data + j * from.stride;
        for (int64_t s = 0; s < words; s += kLanes) {
            __m512i x[16];
            if (count == kLanes && s + kLanes <= pairs) {
#pragma GCC unroll 16
                for (int64_t i = 0; i < 16; ++i) {
                    x[i] = _mm512_loadu_si512(rows + i * from.stride + s * 4);
                }
            } else {
                for (int64_t i = 0; i < 16; ++i) {
                    x[i] = _mm512_setzero_si512();
                    if (i >= count) continue;
                    const std::byte* const row = rows + i * from.stride;
                    if (s < pairs) {
                        x[i] = _mm512_maskz_loadu_epi32(first_lanes(pairs - s), row + s * 4);
                    }
                    if (pairs == words || s + kLanes < words) continue;
                    x[i] = _mm512_mask_set1_epi32(x[i], static_cast<__mmask16>(1U << (pairs - s)),
                                                  load<uint16_t>(row + pairs * 4));
                }
            }
            transpose(x);
            Word* const out = to + s * width + j;
            if (s + kLanes <= words) {
#pragma GCC unroll 16
                for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(out + i * width, x[i]);
            } else {
                for (int64_t i = 0; i < words - s; ++i) _mm512_store_si512(out + i * width, x[i]);
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::host
