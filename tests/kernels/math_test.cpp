// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/math.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/bf16.hpp"
#include "tests/kernels/activations.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

TEST(FastExp, IsWithinTwoUlpAndKeepsSpecialValues) {
    for (int i = -1040000; i <= 890000; ++i) {
        const float x = static_cast<float>(i) * 1e-4F;
        const double exact = std::exp(static_cast<double>(x));
        if (exact > static_cast<double>(std::numeric_limits<float>::max())) continue;
        // an ulp is 2 eps of the value, and never less than the smallest subnormal
        const double ulp = std::max(2 * kEps32 * exact, 0x1p-149);
        ASSERT_NEAR(static_cast<double>(host::fast_exp(x)), exact, 2 * ulp) << x;
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(host::fast_exp(0.0F), 1.0F);
    EXPECT_EQ(host::fast_exp(-kInfinity), 0.0F);
    EXPECT_EQ(host::fast_exp(-1e30F), 0.0F);
    EXPECT_EQ(host::fast_exp(kInfinity), kInfinity);
    EXPECT_EQ(host::fast_exp(88.8F), kInfinity);
    EXPECT_TRUE(std::isnan(host::fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastLog, IsWithinFourUlpAndFiniteAtZero) {
    const auto expect_log = [](float x) {
        const double exact = std::log(static_cast<double>(x));
        // an ulp is at most 2 eps of the value
        ASSERT_NEAR(static_cast<double>(host::fast_log(x)), exact, 8 * kEps32 * std::abs(exact))
            << x;
    };
    for (int i = -1260; i <= 400; ++i) {
        for (int j = 0; j < 64; ++j) expect_log(std::ldexp(1 + static_cast<float>(j) / 64, i / 10));
    }
    for (int i = -20000; i <= 20000; ++i) expect_log(1 + static_cast<float>(i) * 0x1p-20F);
    EXPECT_EQ(host::fast_log(1.0F), 0.0F);
    EXPECT_EQ(0.0F * host::fast_log(0.0F), 0.0F);
    EXPECT_EQ(host::fast_log(0.0F), host::fast_log(0x1p-126F));
}

TEST(FastTanh, IsWithinFourUlpAndKeepsSpecialValues) {
    for (int i = -120000; i <= 120000; ++i) {
        const float x = static_cast<float>(i) * (i % 2 == 0 ? 1e-4F : 1e-7F);
        const double exact = std::tanh(static_cast<double>(x));
        // an ulp is at most 2 eps of the value
        ASSERT_NEAR(static_cast<double>(host::fast_tanh(x)), exact, 8 * kEps32 * std::abs(exact))
            << x;
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(host::fast_tanh(0.0F), 0.0F);
    EXPECT_EQ(host::fast_tanh(kInfinity), 1.0F);
    EXPECT_EQ(host::fast_tanh(-kInfinity), -1.0F);
    EXPECT_EQ(host::fast_tanh(-1e30F), -1.0F);
    EXPECT_TRUE(std::isnan(host::fast_tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Bf16, RoundsToNearestEvenAndKeepsSpecialValues) {
    EXPECT_EQ(to_bf16(1.0F).bits, 0x3f80);
    EXPECT_EQ(to_bf16(1.0F + 0x1p-8F).bits, 0x3f80);             // tie, to even
    EXPECT_EQ(to_bf16(1.0F + 0x1p-8F + 0x1p-20F).bits, 0x3f81);  // above the tie
    EXPECT_EQ(to_bf16(1.0F + 3 * 0x1p-8F).bits, 0x3f82);         // tie, to even
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
    EXPECT_EQ(to_bf16(-0.0F).bits, 0x8000);
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

/// The distribution takes x and exp(-x^2 / 2) as a caller rounds it.
TEST(NormalDistribution, IsWithinItsErrorOnBothSidesAndKeepsSpecialValues) {
    const auto of = [](float x) {
        return host::normal_distribution(x, host::fast_exp(-0.5F * x * x));
    };
    for (int i = -130000; i <= 130000; ++i) {
        const float x = static_cast<float>(i) * (i % 2 == 0 ? 1e-4F : 1e-6F);
        const auto v = static_cast<double>(x);
        const double exact = std::erfc(-v / std::sqrt(2.0)) / 2;
        ASSERT_NEAR(static_cast<double>(of(x)), exact,
                    activation_error(Activation::gelu, v) * exact + 0x1p-149)
            << x;
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(of(0.0F), 0.5F);
    EXPECT_EQ(of(-kInfinity), 0.0F);
    EXPECT_EQ(of(kInfinity), 1.0F);
    EXPECT_EQ(of(-1e30F), 0.0F);
    EXPECT_TRUE(std::isnan(of(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace vocabpipe::kernels::test
