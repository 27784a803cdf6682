// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "vector_types.h"

// bfloat16 of the stand-in: storage and conversions; arithmetic is done in float.

/// As the hardware converts: to nearest, ties to even; overflow gives infinity; NaN gives 0x7fff.
struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x) {}
    __nv_bfloat16(float value) {
        const auto bits = std::bit_cast<uint32_t>(value);
        const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
        __x = static_cast<unsigned short>(is_nan ? 0x7fffU
                                                 : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
    }
    operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(__x) << 16); }
    operator __nv_bfloat16_raw() const { return {__x}; }

private:
    unsigned short __x;
};
static_assert(sizeof(__nv_bfloat16) == 2);

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x;
    __nv_bfloat16 y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
static_assert(sizeof(__nv_bfloat162) == 4);

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __bfloat162float(__nv_bfloat16 value) {
    return static_cast<float>(value);
}
inline __nv_bfloat16 __float2bfloat16(float value) {
    return {value};
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    return {value};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 pair) {
    return __floats2bfloat162_rn(pair.x, pair.y);
}
inline float2 __bfloat1622float2(__nv_bfloat162 pair) {
    return {static_cast<float>(pair.x), static_cast<float>(pair.y)};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
inline float __low2float(__nv_bfloat162 pair) {
    return static_cast<float>(pair.x);
}
inline float __high2float(__nv_bfloat162 pair) {
    return static_cast<float>(pair.y);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
    return static_cast<__nv_bfloat16_raw>(value).x;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return __nv_bfloat16_raw{bits};
}
