// SPDX-License-Identifier: Apache-2.0
// Packs matrices into words, each of one fp32 term or two bf16 terms, and multiplies words: private
// to panel_product_avx512.cpp and attention_tiles.hpp, and compiled for AVX-512 like them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/host/panel_words.hpp"

namespace vocabpipe::kernels::host {
namespace {

/// Mask of the first `count` lanes of a vector, at most all.
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

/// sum + the products of the terms in each word.
template <DType type>
__m512 add_words(__m512 sum, __m512i a, __m512i b) {
    if constexpr (type == DType::bf16) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    } else {
        return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
    }
}

/// Words of 16 columns of two rows; columns outside `mask`, and a null row, are zeros.
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
    // Order of the 64 numbers of one row and the next: 0, 32, 1, 33, ...
    const __m512i even =
        _mm512_set_epi32(0x002f000f, 0x002e000e, 0x002d000d, 0x002c000c, 0x002b000b, 0x002a000a,
                         0x00290009, 0x00280008, 0x00270007, 0x00260006, 0x00250005, 0x00240004,
                         0x00230003, 0x00220002, 0x00210001, 0x00200000);
    const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(16));
    return {_mm512_permutex2var_epi16(row, even, next), _mm512_permutex2var_epi16(row, odd, next)};
}

/// Rows are terms: the words of 16 columns are at to + s width, for s = 0, 1, ..., those of the
/// next 16 columns `apart` words later. Columns up to a multiple of 16 and a missing last term are
/// zeros.
template <DType type>
void pack_by_rows(const Stored& from, int64_t terms, int64_t columns, Word* to, int64_t width,
                  int64_t apart) {
    if constexpr (type == DType::fp32) {
        for (int64_t term = 0; term < terms; ++term, to += width) {
            const std::byte* const row = from.data + term * from.stride;
            Word* out = to;
            for (int64_t j = 0; j < columns; j += kLanes, out += apart) {
                _mm512_store_si512(out,
                                   _mm512_maskz_loadu_epi32(first_lanes(columns - j), row + j * 4));
            }
        }
        return;
    }
    const int64_t whole = columns / (2 * kLanes) * (2 * kLanes);
    for (int64_t term = 0; term < terms; term += 2, to += width) {
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

/// Turns sixteen rows of 16 words into columns: word i of row r goes to to[i width + r]. In two
/// halves, each of which fits in the registers.
[[gnu::always_inline]] inline void transpose(const __m512i (&rows)[16], Word* to, int64_t width) {
    __m512i y[4][4];  // y[j][g]: rows 4 g to 4 g + 3, words j, j + 4, j + 8, j + 12
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
        const __m512i* const x = rows + 4 * g;
        const __m512i low = _mm512_unpacklo_epi32(x[0], x[1]);
        const __m512i high = _mm512_unpackhi_epi32(x[0], x[1]);
        const __m512i next_low = _mm512_unpacklo_epi32(x[2], x[3]);
        const __m512i next_high = _mm512_unpackhi_epi32(x[2], x[3]);
        y[0][g] = _mm512_unpacklo_epi64(low, next_low);
        y[1][g] = _mm512_unpackhi_epi64(low, next_low);
        y[2][g] = _mm512_unpacklo_epi64(high, next_high);
        y[3][g] = _mm512_unpackhi_epi64(high, next_high);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i even = _mm512_shuffle_i32x4(y[j][0], y[j][1], 0x88);
        const __m512i odd = _mm512_shuffle_i32x4(y[j][0], y[j][1], 0xdd);
        const __m512i next_even = _mm512_shuffle_i32x4(y[j][2], y[j][3], 0x88);
        const __m512i next_odd = _mm512_shuffle_i32x4(y[j][2], y[j][3], 0xdd);
        Word* const out = to + j * width;
        _mm512_store_si512(out, _mm512_shuffle_i32x4(even, next_even, 0x88));
        _mm512_store_si512(out + 4 * width, _mm512_shuffle_i32x4(odd, next_odd, 0x88));
        _mm512_store_si512(out + 8 * width, _mm512_shuffle_i32x4(even, next_even, 0xdd));
        _mm512_store_si512(out + 12 * width, _mm512_shuffle_i32x4(odd, next_odd, 0xdd));
    }
}

/// Terms are along the rows: packs as pack_by_rows() does the transposed matrix with `apart` = 16.
template <DType type>
void pack_by_columns(const Stored& from, int64_t terms, int64_t columns, Word* to, int64_t width) {
    const int64_t full = terms / kWordTerms<type>;  // words without a missing term
    const int64_t words = words_of<type>(terms);
    for (int64_t j = 0; j < columns; j += kLanes) {
        const int64_t count = columns - j < kLanes ? columns - j : kLanes;
        const std::byte* const rows = from.data + j * from.stride;
        Word* out = to + j;
        int64_t s = 0;
        __m512i x[16];
        if (count == kLanes) {
            for (; s + kLanes <= full; s += kLanes, out += kLanes * width) {
                const std::byte* row = rows + s * 4;
#pragma GCC unroll 4
                for (int i = 0; i < 16; i += 4, row += 4 * from.stride) {
                    x[i] = _mm512_loadu_si512(row);
                    x[i + 1] = _mm512_loadu_si512(row + from.stride);
                    x[i + 2] = _mm512_loadu_si512(row + 2 * from.stride);
                    x[i + 3] = _mm512_loadu_si512(row + 3 * from.stride);
                }
                transpose(x, out, width);
            }
        }
        for (; s < words; s += kLanes, out += kLanes * width) {
            for (int64_t i = 0; i < 16; ++i) {
                x[i] = _mm512_setzero_si512();
                if (i >= count) continue;
                const std::byte* const row = rows + i * from.stride;
                if (s < full) {
                    x[i] = _mm512_maskz_loadu_epi32(first_lanes(full - s), row + s * 4);
                }
                if (full == words || s + kLanes < words) continue;
                x[i] = _mm512_mask_set1_epi32(x[i], static_cast<__mmask16>(1U << (full - s)),
                                              load<uint16_t>(row + full * 4));
            }
            if (s + kLanes <= words) {
                transpose(x, out, width);
                continue;
            }
            alignas(64) Word last[kLanes * kLanes];
            transpose(x, last, kLanes);
            for (int64_t i = 0; i < words - s; ++i) {
                _mm512_store_si512(out + i * width, _mm512_load_si512(last + i * kLanes));
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::host
