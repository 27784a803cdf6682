// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 on every machine: nothing of the standard library may be instantiated here,
// because the linker might use that instance elsewhere, too.
#include "kernels/host/exponential_row.hpp"

#ifdef __AVX512BF16__

#include "kernels/host/vector_exp.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr int64_t kLanes = 16;

template <bool kEntropy>
ExponentialRow make_row(const float* z, float m, uint16_t* e, int64_t count) {
    const __m512 none = _mm512_set1_ps(-__builtin_inff());
    const __m512 shift = _mm512_set1_ps(m);
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 largest[2] = {none, none};
    __m512 weighted[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const __m512 least = _mm512_set1_ps(-200.0F);  // exp() is 0 there, and the product too
    const auto add = [&](__m512 values, int lane) {
        largest[lane] = _mm512_max_ps(values, largest[lane]);
        const __m512 exponent = _mm512_sub_ps(values, shift);
        const __m512 power = exp(exponent);
        sum[lane] = _mm512_add_ps(sum[lane], power);
        if constexpr (kEntropy) {
            weighted[lane] = _mm512_fmadd_ps(power, _mm512_max_ps(exponent, least), weighted[lane]);
        }
        return power;
    };
    int64_t j = 0;
    for (; j + 2 * kLanes <= count; j += 2 * kLanes) {
        const __m512 low = add(_mm512_loadu_ps(z + j), 0);
        const __m512 high = add(_mm512_loadu_ps(z + j + kLanes), 1);
        _mm512_storeu_si512(e + j, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
    for (; j < count; j += kLanes) {
        const int64_t left = count - j;
        const auto mask = static_cast<__mmask16>(left >= kLanes ? 0xffff : (1 << left) - 1);
        const __m512 last = add(_mm512_mask_loadu_ps(none, mask, z + j), 0);
        _mm256_mask_storeu_epi16(e + j, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(last)));
    }
    return {_mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1])),
            _mm512_reduce_max_ps(_mm512_max_ps(largest[0], largest[1])),
            _mm512_reduce_add_ps(_mm512_add_ps(weighted[0], weighted[1]))};
}

}  // namespace

ExponentialRow exponential_row(const float* z, float m, uint16_t* e, int64_t count) {
    return make_row<false>(z, m, e, count);
}

ExponentialRow exponential_row_for_entropy(const float* z, float m, uint16_t* e, int64_t count) {
    return make_row<true>(z, m, e, count);
}

}  // namespace vocabpipe::kernels::host

#elif !defined(__x86_64__)

namespace vocabpipe::kernels::host {

ExponentialRow exponential_row(const float*, float, uint16_t*, int64_t) {
    return {};
}

ExponentialRow exponential_row_for_entropy(const float*, float, uint16_t*, int64_t) {
    return {};
}

}  // namespace vocabpipe::kernels::host

#endif
