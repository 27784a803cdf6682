// SPDX-License-Identifier: Apache-2.0
// Vectors of 8 fp32 terms for panel_loops.hpp, as compilers have them for every CPU: private to
// panel_product_avx2.cpp and panel_product_plain.cpp, each of which gets its own copy.
#pragma once

#ifdef __FMA__
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/host/panel_words.hpp"

namespace vocabpipe::kernels::host {
namespace {

using EightFloats [[gnu::vector_size(32)]] = float;
using EightWords [[gnu::vector_size(32)]] = Word;

#if defined(__FMA__)
EightFloats fused(EightFloats a, EightFloats b, EightFloats c) {
    return _mm256_fmadd_ps(a, b, c);
}
#elif defined(__FP_FAST_FMAF)
EightFloats fused(EightFloats a, EightFloats b, EightFloats c) {
    for (int i = 0; i < 8; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
#else
using EightDoubles [[gnu::vector_size(64)]] = double;
using EightLongs [[gnu::vector_size(64)]] = int64_t;

/// a b + c, rounded once, without an instruction for it: the product is exact in fp64, and the sum
/// is rounded there to odd, which a second rounding does not change (Boldo and Melquiond,
/// "Emulation of a FMA and correctly rounded sums", 2008).
EightFloats fused(EightFloats a, EightFloats b, EightFloats c) {
    const EightDoubles product =
        __builtin_convertvector(a, EightDoubles) * __builtin_convertvector(b, EightDoubles);
    const EightDoubles addend = __builtin_convertvector(c, EightDoubles);
    EightDoubles sum = product + addend;
    const EightDoubles of_addend = sum - product;
    const EightDoubles error = (product - (sum - of_addend)) + (addend - of_addend);
    EightLongs bits;
    __builtin_memcpy(&bits, &sum, sizeof(bits));
    // Infinite sums have an error that is not a number, which compares as neither.
    const EightLongs above = error > 0.0, below = error < 0.0;
    const EightLongs is_even = (bits & 1) - 1, negative = bits >> 63;
    // Away from 0 is one up, as bits of a magnitude.
    const EightLongs up = (above & ~negative) | (below & negative);
    const EightLongs down = (below & ~negative) | (above & negative);
    bits += (down & is_even) - (up & is_even);
    __builtin_memcpy(&sum, &bits, sizeof(sum));
    return __builtin_convertvector(sum, EightFloats);
}
#endif

/// What panel_loops.hpp asks for.
struct EightLanes {
    static constexpr int64_t kLanes = 8;
    static constexpr int kTileRows = 6;
    static constexpr int kTileVectors = 2;
    static constexpr int64_t kPackedRows = 6;
    using Floats = EightFloats;
    using Words = EightWords;
    using Mask = int64_t;  ///< lanes from the first on

    static Mask first_lanes(int64_t count) { return smaller(count, kLanes); }
    static Words load_words(const Word* from) {
        Words words;
        __builtin_memcpy(&words, from, sizeof(words));
        return words;
    }
    static Words every_lane(Word word) { return Words{} + word; }
    template <DType type>
    static Floats load_floats(const std::byte* from, Mask lanes) {
        static_assert(type == DType::fp32);
        Floats values{};
        if (lanes == kLanes) {
            __builtin_memcpy(&values, from, sizeof(values));
        } else {
            __builtin_memcpy(&values, from, static_cast<size_t>(lanes) * sizeof(float));
        }
        return values;
    }
    template <DType type>
    static void store_floats(std::byte* to, Mask lanes, Floats values) {
        static_assert(type == DType::fp32);
        if (lanes == kLanes) {
            __builtin_memcpy(to, &values, sizeof(values));
        } else {
            __builtin_memcpy(to, &values, static_cast<size_t>(lanes) * sizeof(float));
        }
    }
    template <DType type>
    static Floats add_words(Floats sum, Words a, Words b) {
        static_assert(type == DType::fp32);
        return fused(reinterpret_cast<Floats>(a), reinterpret_cast<Floats>(b), sum);
    }

    /// Packs columns of rows that are terms: `width` together, the next `apart` words later.
    /// Columns up to a multiple of `width` are zeros.
    template <DType type, int64_t width>
    static void pack_rows(const Stored& from, int64_t terms, int64_t columns, Word* to,
                          int64_t apart) {
        constexpr int64_t kBytes = width * int64_t{sizeof(Word)};
        const int64_t whole = columns / width * width;
        for (int64_t term = 0; term < terms; ++term, to += width) {
            const std::byte* const row = from.data + term * from.stride;
            Word* out = to;
            for (int64_t j = 0; j < whole; j += width, out += apart) {
                __builtin_memcpy(out, row + j * 4, kBytes);
            }
            if (whole == columns) continue;
            for (int64_t j = 0; j < width; ++j) {
                out[j] = whole + j < columns ? load<Word>(row + (whole + j) * 4) : 0;
            }
        }
    }

    /// Packs columns that are stored as rows, at most `width`. Columns up to a multiple of 8 are
    /// zeros.
    template <DType type, int64_t width>
    static void pack_columns(const Stored& from, int64_t terms, int64_t columns, Word* to) {
        for (int64_t j = 0; j < columns; j += kLanes) {
            const int64_t count = smaller(kLanes, columns - j);
            const std::byte* const rows = from.data + j * from.stride;
            int64_t term = 0;
            for (; count == kLanes && term + kLanes <= terms; term += kLanes) {
                Words x[kLanes];
#pragma GCC unroll 8
                for (int i = 0; i < kLanes; ++i) {
                    __builtin_memcpy(&x[i], rows + i * from.stride + term * 4, sizeof(x[i]));
                }
                transpose(x, to + term * width + j, width);
            }
            for (; term < terms; ++term) {
                Word* const out = to + term * width + j;
                for (int64_t i = 0; i < kLanes; ++i) {
                    out[i] = i < count ? load<Word>(rows + i * from.stride + term * 4) : 0;
                }
            }
        }
    }

private:
    /// Word i of row r goes to to[i width + r].
    static void transpose(const Words (&x)[kLanes], Word* to, int64_t width) {
        Words pairs[kLanes], fours[kLanes];
#pragma GCC unroll 4
        for (int i = 0; i < kLanes; i += 2) {
            pairs[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
            pairs[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
        }
#pragma GCC unroll 2
        for (int i = 0; i < kLanes; i += 4) {
#pragma GCC unroll 2
            for (int k = 0; k < 2; ++k) {
                const Words low = pairs[i + k], high = pairs[i + k + 2];
                fours[i + 2 * k] = __builtin_shufflevector(low, high, 0, 1, 8, 9, 4, 5, 12, 13);
                fours[i + 2 * k + 1] =
                    __builtin_shufflevector(low, high, 2, 3, 10, 11, 6, 7, 14, 15);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const Words near =
                __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
            const Words far =
                __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
            __builtin_memcpy(to + i * width, &near, sizeof(near));
            __builtin_memcpy(to + (i + 4) * width, &far, sizeof(far));
        }
    }
};

}  // namespace
}  // namespace vocabpipe::kernels::host
