// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace {

TEST(StandInBFloat16, EveryValueSurvivesTheWayThroughFloat) {
    for (unsigned int bits = 0; bits < 0x10000; ++bits) {
        const auto value = __ushort_as_bfloat16(static_cast<unsigned short>(bits));
        const float wide = __bfloat162float(value);
        if (std::isnan(wide)) {
            EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16(wide)), 0x7fff);
        } else {
            ASSERT_EQ(__bfloat16_as_ushort(__float2bfloat16(wide)), bits);
        }
    }
}

TEST(StandInBFloat16, RoundsToTheNearestTiesToEven) {
    const auto rounded = [](uint32_t bits) {
        return __bfloat16_as_ushort(__float2bfloat16(std::bit_cast<float>(bits)));
    };
    EXPECT_EQ(rounded(0x3f808000U), 0x3f80);  // tie, even below
    EXPECT_EQ(rounded(0x3f818000U), 0x3f82);  // tie, even above
    EXPECT_EQ(rounded(0x3f808001U), 0x3f81);
    EXPECT_EQ(rounded(0x3f817fffU), 0x3f81);
    EXPECT_EQ(rounded(0x7f7fffffU), 0x7f80);  // beyond the largest: infinity
}

TEST(StandInBFloat16, PairsKeepTheirOrder) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(1.0F, -2.0F);
    EXPECT_EQ(__low2float(pair), 1.0F);
    EXPECT_EQ(__high2float(pair), -2.0F);
    EXPECT_EQ(__bfloat1622float2(pair).y, -2.0F);
    EXPECT_EQ(std::bit_cast<uint32_t>(pair), 0xc0003f80U);
}

}  // namespace
