// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/bf16.hpp"
#include "kernels/host/math.hpp"
#include "kernels/reference/operators.hpp"
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

/// Of x and exp(-x^2 / 2) as a caller rounds it.
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

class ActivationOfType : public testing::TestWithParam<std::tuple<DType, Activation>> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(ActivationOfType, AgreesWithTheReferenceInBothDirections) {
    const auto [type, activation] = GetParam();
    for (const auto& [n, h] : {std::pair{1, 1}, {3, 17}, {17, 129}, {64, 1000}}) {
        const auto x = Matrix::random(n, h, type, 1, -8.0, 8.0);
        const auto dy = Matrix::random(n, h, type, 2);
        Matrix y(n, h, type), dx(n, h, type);
        Matrix exact_y(n, h, DType::fp64), exact_dx(n, h, DType::fp64);
        host::activation_forward(ctx, activation, x, y);
        host::activation_backward(ctx, activation, dy, x, dx);
        reference::activation_forward(ctx, activation, x, exact_y);
        reference::activation_backward(ctx, activation, dy, x, exact_dx);
        const double roundoff = unit_roundoff(type) * 1.01;
        expect_close(y, exact_y, [&, of = activation](int64_t row, int64_t col) {
            const double value = std::abs(exact_y.get(row, col));
            // The reference cancels in 1 + tanh: 2^-53 |x|.
            return (activation_error(of, x.get(row, col)) + roundoff) * value + 1e-14;
        });
        expect_close(dx, exact_dx, [&](int64_t row, int64_t col) {
            return activation_slope_error(x.get(row, col)) +
                   roundoff * std::abs(exact_dx.get(row, col));
        });

        auto aliased = dy.as(type);
        host::activation_backward(ctx, activation, aliased, x, aliased);
        EXPECT_TRUE(aliased.same_bits(dx));

        Context two({.threads = 2, .poll = {}});
        Matrix y2(n, h, type), dx2(n, h, type);
        host::activation_forward(two, activation, x, y2);
        host::activation_backward(two, activation, dy, x, dx2);
        EXPECT_TRUE(y2.same_bits(y));
        EXPECT_TRUE(dx2.same_bits(dx));
    }
}

INSTANTIATE_TEST_SUITE_P(Types, ActivationOfType,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::ValuesIn(kActivations)),
                         [](const auto& info) {
                             return std::string(name_of(std::get<0>(info.param))) + "_" +
                                    name_of(std::get<1>(info.param));
                         });

TEST(ReferenceActivation, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const Activation activation : kActivations) {
        auto x = Matrix::random(3, 20, DType::fp64, 1, -4.0, 4.0);
        const auto dy = Matrix::random(3, 20, DType::fp64, 2);
        Matrix dx(3, 20, DType::fp64);
        reference::activation_backward(ctx, activation, dy, x, dx);
        const auto loss = [&] {
            Matrix y(3, 20, DType::fp64);
            reference::activation_forward(ctx, activation, x, y);
            return dot(y, dy);
        };
        expect_close(dx, numeric_gradient(x, loss),
                     [](int64_t, int64_t) { return kDifferenceBound; });
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
