// SPDX-License-Identifier: Apache-2.0
// Branch-free fp32 functions that a compiler vectorises inside `#pragma omp simd` loops.
#pragma once

#include <bit>
#include <cstdint>

namespace vocabpipe::kernels::host {

/// exp(x), within 2 ulp. -inf and x < -104 give 0, x > 88.73 gives inf, NaN stays NaN; subnormal
/// results are kept.
[[nodiscard]] inline float fast_exp(float x) {
    constexpr float kLog2e = 1.44269504088896341F;
    constexpr float kLn2High = 0.693359375F;  // 9 bits, so that n * kLn2High is exact
    constexpr float kLn2Low = -2.12194440e-4F;
    constexpr float kToInteger = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
    x = x < -104.0F ? -104.0F : x;             // written so that NaN passes both clamps
    x = x > 89.0F ? 89.0F : x;
    const float shifted = x * kLog2e + kToInteger;
    const float n = shifted - kToInteger;
    const float r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
    float p = 1.9875691500e-4F;                        // minimax polynomial of Cephes' expf
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + (r + 1.0F);
    // 2^n in two factors: n ranges from -150 to 128, beyond the exponents of one fp32.
    const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kToInteger);
    const int32_t half = exponent >> 1;
    const auto power = [](int32_t e) {
        return std::bit_cast<float>(static_cast<uint32_t>(e + 127) << 23);
    };
    return p * power(half) * power(exponent - half);
}

/// x, but not below -200, where exp(x) is 0: so that exp(x) times it is 0 for -infinity, too.
[[nodiscard]] inline float finite_exponent(float x) {
    return x < -200.0F ? -200.0F : x;
}

/// log(x) of a normal x, within 4 ulp; below 2^-126 that of 2^-126, so that 0 times it is 0. NaN
/// and infinity give some number, which times them is what they are.
[[nodiscard]] inline float fast_log(float x) {
    x = x < 0x1p-126F ? 0x1p-126F : x;
    // 1 + f in [sqrt(1/2), sqrt(2)), times 2^e.
    const int32_t bits = std::bit_cast<int32_t>(x);
    const int32_t e = (bits - 0x3f3504f3) >> 23;
    const float f =
        std::bit_cast<float>(bits - static_cast<int32_t>(static_cast<uint32_t>(e) << 23)) - 1.0F;
    const auto exponent = static_cast<float>(e);
    float p = 7.0376836292e-2F;  // minimax polynomial of Cephes' logf
    p = p * f - 1.1514610310e-1F;
    p = p * f + 1.1676998740e-1F;
    p = p * f - 1.2420140846e-1F;
    p = p * f + 1.4249322787e-1F;
    p = p * f - 1.6668057665e-1F;
    p = p * f + 2.0000714765e-1F;
    p = p * f - 2.4999993993e-1F;
    p = p * f + 3.3333331174e-1F;
    const float square = f * f;
    const float tail = f * square * p - 2.12194440e-4F * exponent - 0.5F * square;
    return (f + tail) + 0.693359375F * exponent;
}

/// tanh(x), relative error a few ulp; NaN stays NaN.
[[nodiscard]] inline float fast_tanh(float x) {
    const float magnitude = x < 0.0F ? -x : x;
    const float far = 1.0F - 2.0F / (fast_exp(2.0F * magnitude) + 1.0F);
    const float z = x * x;  // minimax polynomial of Cephes' tanhf for |x| < 0.625
    float p = -5.70498872745e-3F;
    p = p * z + 2.06390887954e-2F;
    p = p * z - 5.37397155531e-2F;
    p = p * z + 1.33314422036e-1F;
    p = p * z - 3.33332819422e-1F;
    const float near = x + x * (p * z);
    return magnitude < 0.625F ? near : x < 0.0F ? -far : far;
}

/// 1 / (1 + exp(-x)), relative error a few ulp on both sides.
[[nodiscard]] inline float fast_sigmoid(float x) {
    return 1.0F / (1.0F + fast_exp(-x));
}

/// The normal distribution function erfc(-x / sqrt(2)) / 2, given exp(-x^2 / 2): relative error of
/// that and 6 ulp on the negative side, absolute error likewise on the positive one.
[[nodiscard]] inline float normal_distribution(float x, float bell) {
    // tail(|x|) = bell t P(t) with t = 1 / (1 + 0.34 |x|), P fitted to a relative error of 3e-8
    // over |x| < 14; beyond it bell is 0.
    const float t = 1.0F / (1.0F + 0.34F * (x < 0.0F ? -x : x));
    float p = -2.612055077e-2F;
    p = p * t + 1.394998186e-1F;
    p = p * t - 2.731333314e-1F;
    p = p * t + 2.021832465e-1F;
    p = p * t - 4.471879088e-2F;
    p = p * t + 1.153592828e-1F;
    p = p * t + 1.151976346e-1F;
    p = p * t + 1.361122009e-1F;
    p = p * t + 1.356205048e-1F;
    const float tail = bell * (t * p);
    return x < 0.0F ? tail : 1.0F - tail;
}

}  // namespace vocabpipe::kernels::host
