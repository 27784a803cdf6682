// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/exponential_row.hpp"
#include "kernels/host/instruction_set.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/bf16.hpp"

namespace vocabpipe::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ExponentialRows : public ::testing::Test {
protected:
    void SetUp() override {
        if (!host::has_avx512(host::cpu_instruction_set(), DType::bf16)) {
            GTEST_SKIP() << "no AVX-512 with bf16";
        }
    }
};

/// The same row for the entropy: the sum of exp(z - m) (z - m), and everything else to the bit.
void expect_weighted(const std::vector<float>& z, float m, const std::vector<uint16_t>& e,
                     const host::ExponentialRow& plain) {
    std::vector<uint16_t> again(e.size(), 7);
    const host::ExponentialRow row =
        host::exponential_row_for_entropy(z.data(), m, again.data(), std::ssize(z));
    EXPECT_EQ(again, e);
    EXPECT_EQ(row.sum, plain.sum);
    EXPECT_EQ(row.largest, plain.largest);
    double weighted = 0, bound = 0;
    for (const float one : z) {
        if (one == -kInfinity) continue;
        const double x = double{one} - double{m};
        weighted += std::exp(x) * x;
        // Errors of the exponential as in its sum, of the factor, and of adding up.
        bound += std::exp(x) * std::abs(x) *
                 (0x1p-22 + 0x1.4p-23 * std::abs(x) + 0x1p-24 * static_cast<double>(z.size()));
        bound += std::exp(x) * 0x1p-23 * std::abs(x);
    }
    EXPECT_NEAR(row.weighted, weighted, bound);
}

TEST_F(ExponentialRows, AreThoseOfFp64WithinTheirBoundAndNothingIsWrittenBehindThem) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> logits(-70, 30);
    for (int64_t count = 1; count < 120; ++count) {
        std::vector<float> z(static_cast<size_t>(count));
        for (float& one : z) one = logits(random);
        z[static_cast<size_t>(count) / 2] = -kInfinity;
        const float m = logits(random) / 4;
        std::vector<uint16_t> e(z.size() + 1, 7);
        const host::ExponentialRow row = host::exponential_row(z.data(), m, e.data(), count);
        double sum = 0, bound = 0;
        for (size_t j = 0; j < z.size(); ++j) {
            const double x = double{z[j]} - double{m};
            const float stored = to_float(Bf16{e[j]});
            if (z[j] == -kInfinity) {
                EXPECT_EQ(stored, 0);
                continue;
            }
            EXPECT_NEAR(stored / std::exp(x), 1, 0x1p-8) << z[j];
            sum += std::exp(x);
            // x is rounded, too, and so is the sum.
            bound += std::exp(x) * (0x1p-23 + (0x1.4p-24 + 0x1p-24) * std::abs(x) +
                                    0x1p-24 * static_cast<double>(count));
        }
        EXPECT_NEAR(row.sum, sum, bound) << count;
        EXPECT_EQ(row.weighted, 0);
        expect_weighted(z, m, e, row);
        EXPECT_EQ(row.largest, *std::max_element(z.begin(), z.end()));
        EXPECT_EQ(e.back(), 7);
    }
}

TEST_F(ExponentialRows, KeepNanAndInfinityAndAreOneAtTheReferencePoint) {
    std::vector<float> z{3, kInfinity, std::nanf(""), -kInfinity, 3 - 200.0F};
    std::vector<uint16_t> e(z.size());
    const host::ExponentialRow row = host::exponential_row(z.data(), 3, e.data(), std::ssize(z));
    EXPECT_EQ(to_float(Bf16{e[0]}), 1);
    EXPECT_EQ(to_float(Bf16{e[1]}), kInfinity);
    EXPECT_TRUE(std::isnan(to_float(Bf16{e[2]})));
    EXPECT_EQ(to_float(Bf16{e[3]}), 0);
    EXPECT_EQ(to_float(Bf16{e[4]}), 0);
    EXPECT_TRUE(std::isnan(row.sum));
    EXPECT_EQ(row.largest, kInfinity);
    const host::ExponentialRow one = host::exponential_row(z.data(), 3, e.data(), 1);
    EXPECT_EQ(one.sum, 1);
    EXPECT_EQ(one.largest, 3);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
