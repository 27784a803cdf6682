// SPDX-License-Identifier: Apache-2.0
// Products of small blocks of bf16 or fp32 that lie in a near cache, and functions of vectors:
// private to attention_head.hpp, and compiled for AVX-512 like it.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/host/attention_memory.hpp"
#include "kernels/host/panel_packing.hpp"
#include "kernels/host/vector_exp.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {
namespace {

/// Word s of row r is at data + r row + s step.
struct LeftWords {
    const Word* data = nullptr;
    int64_t row = 0, step = 0;
};

/// Words s of all columns are at data + s step.
struct RightWords {
    const Word* data = nullptr;
    int64_t step = 0;
};

/// Where sums go: row r becomes kept[r] times its old value plus the sum; kept null: the sum.
struct Sums {
    float* data = nullptr;
    int64_t row = 0;
    const float* kept = nullptr;
};

constexpr int kVectorsOfTile = 4;

template <DType type, int rows, int vectors>
void sum_tile(const LeftWords& a, const RightWords& b, int64_t words, const Sums& to) {
    __m512 sums[rows][vectors];
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_setzero_ps();
    }
    const Word* left = a.data;
    const Word* right = b.data;
    for (int64_t s = 0; s < words; ++s, left += a.step, right += b.step) {
        __m512i columns[vectors];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) columns[v] = _mm512_load_si512(right + v * kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < rows; ++r) {
            const __m512i word = _mm512_set1_epi32(static_cast<int>(left[r * a.row]));
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) {
                sums[r][v] = add_words<type>(sums[r][v], word, columns[v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
        float* const row = to.data + r * to.row;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            __m512 sum = sums[r][v];
            if (to.kept != nullptr) {
                const __m512 before = _mm512_load_ps(row + v * kLanes);
                sum = _mm512_fmadd_ps(before, _mm512_set1_ps(to.kept[r]), sum);
            }
            _mm512_store_ps(row + v * kLanes, sum);
        }
    }
}

using SumTile = void (*)(const LeftWords&, const RightWords&, int64_t, const Sums&);
template <DType type, int rows>
constexpr SumTile kTilesOfRows[kVectorsOfTile] = {sum_tile<type, rows, 1>, sum_tile<type, rows, 2>,
                                                  sum_tile<type, rows, 3>, sum_tile<type, rows, 4>};
template <DType type>
constexpr const SumTile* kSumTiles[kRowsOfTile] = {kTilesOfRows<type, 1>, kTilesOfRows<type, 2>,
                                                   kTilesOfRows<type, 3>, kTilesOfRows<type, 4>,
                                                   kTilesOfRows<type, 5>, kTilesOfRows<type, 6>};

/// Multiplies up to 6 rows by any number of vectors.
template <DType type>
void sum_rows(const LeftWords& a, const RightWords& b, int64_t words, int64_t rows, int64_t vectors,
              const Sums& to) {
    // Tiles of nearly equal width: one of a single vector would wait for its sums.
    const int64_t tiles = (vectors + kVectorsOfTile - 1) / kVectorsOfTile;
    for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t begin = vectors * tile / tiles, end = vectors * (tile + 1) / tiles;
        kSumTiles<type>[rows - 1][end - begin - 1](a, {b.data + begin * kLanes, b.step}, words,
                                                   {to.data + begin * kLanes, to.row, to.kept});
    }
}

/// tanh(x), relative error a few ulp; NaN stays NaN.
__m512 tanh(__m512 x) {
    const __m512 one = _mm512_set1_ps(1.0F);
    const __m512 magnitude = _mm512_abs_ps(x);
    const __m512 power = exp(_mm512_mul_ps(magnitude, _mm512_set1_ps(-2.0F)));
    const __m512 far = _mm512_div_ps(_mm512_sub_ps(one, power), _mm512_add_ps(one, power));
    const __m512 z = _mm512_mul_ps(x, x);
    __m512 p = _mm512_set1_ps(-5.70498872745e-3F);  // like fast_tanh()
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(2.06390887954e-2F));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-5.37397155531e-2F));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.33314422036e-1F));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-3.33332819422e-1F));
    const __m512 near = _mm512_fmadd_ps(x, _mm512_mul_ps(p, z), x);
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    const __m512 signed_far = _mm512_mask_sub_ps(far, negative, _mm512_setzero_ps(), far);
    const __mmask16 small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0.625F), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(signed_far, small, near);
}

/// 32 numbers as bf16, in order.
__m512i narrow(__m512 low, __m512 high) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

}  // namespace
}  // namespace vocabpipe::kernels::host
