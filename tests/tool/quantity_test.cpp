// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/quantity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Quantity, OfBytesTakesTheNextUnitFrom1024OnAndStaysAtTheLast) {
    constexpr uint64_t kKiB = 1024;
    constexpr uint64_t kMiB = kKiB << 10;
    constexpr uint64_t kGiB = kMiB << 10;
    constexpr uint64_t kTiB = kGiB << 10;
    EXPECT_EQ(bytes_text(0), "0 B");
    EXPECT_EQ(bytes_text(1023), "1023 B");
    EXPECT_EQ(bytes_text(kKiB), "1.00 KiB");
    EXPECT_EQ(bytes_text(kKiB + kKiB / 2), "1.50 KiB");
    EXPECT_EQ(bytes_text(1023 * kKiB), "1023 KiB");
    EXPECT_EQ(bytes_text(kMiB), "1.00 MiB");
    EXPECT_EQ(bytes_text(kGiB), "1.00 GiB");
    EXPECT_EQ(bytes_text(kTiB), "1.00 TiB");
    EXPECT_EQ(bytes_text(3 * kTiB / 2), "1.50 TiB");
    EXPECT_EQ(bytes_text(2048 * kTiB), "2048 TiB");
}

TEST(Quantity, OfBytesHasTwoDigitsBelow100OfItsUnitAndElseNone) {
    EXPECT_EQ(bytes_text(99 * 1024 + 512), "99.50 KiB");
    EXPECT_EQ(bytes_text(100 * 1024), "100 KiB");
    EXPECT_EQ(bytes_text(100 * 1024 + 768), "101 KiB");
}

TEST(Quantity, OfTimeTakesTheNextUnitFrom1000OnAndHasFourDigits) {
    EXPECT_EQ(time_text(0, 0), "0 ns");
    EXPECT_EQ(time_text(999, 0), "999 ns");
    EXPECT_EQ(time_text(1'000, 0), "1.000 us");
    EXPECT_EQ(time_text(9'876, 0), "9.876 us");
    EXPECT_EQ(time_text(10'000, 0), "10.00 us");
    EXPECT_EQ(time_text(100'000, 0), "100.0 us");
    EXPECT_EQ(time_text(1'000'000, 0), "1.000 ms");
    EXPECT_EQ(time_text(12'345'678, 0), "12.35 ms");
    EXPECT_EQ(time_text(1'000'000'000, 0), "1.000 s");
    EXPECT_EQ(time_text(1'000'000'000'000, 0), "1000 s");
}

TEST(Quantity, OfTimeInUnitsOfTheUserHasNoZerosAtItsEnd) {
    EXPECT_EQ(time_text(0, 100), "0");
    EXPECT_EQ(time_text(1'000, 100), "10");
    EXPECT_EQ(time_text(250, 100), "2.5");
    EXPECT_EQ(time_text(225, 100), "2.25");
    EXPECT_EQ(time_text(2'256, 1'000), "2.26");
    EXPECT_EQ(time_text(7, 1), "7");
}

TEST(Quantity, OfSharesIsInPercent) {
    EXPECT_EQ(percent_text(0), "0.00 %");
    EXPECT_EQ(percent_text(0.47131), "47.13 %");
    EXPECT_EQ(percent_text(1), "100.00 %");
}

TEST(Quantity, OfTimeIsReadInEveryUnitAndRounded) {
    EXPECT_EQ(parse_time("--at", "250", 0), 250);
    EXPECT_EQ(parse_time("--at", "250ns", 0), 250);
    EXPECT_EQ(parse_time("--at", "300us", 0), 300'000);
    EXPECT_EQ(parse_time("--at", "12.5ms", 0), 12'500'000);
    EXPECT_EQ(parse_time("--at", "1s", 0), 1'000'000'000);
    EXPECT_EQ(parse_time("--at", "0", 0), 0);
    EXPECT_EQ(parse_time("--at", "2.6", 0), 3);
    EXPECT_EQ(parse_time("--at", "2.4", 0), 2);
    EXPECT_EQ(parse_time("--at", "2.5", 100), 250);
}

TEST(Quantity, OfTimeThatIsNoneIsRefusedByFlagAndText) {
    for (const char* text : {"", "x", "-1", "1 ms", "1m", "1msx", "5e18", "nan", "inf"}) {
        EXPECT_THAT([&] { (void)parse_time("--at", text, 0); },
                    ThrowsMessage<UsageError>(HasSubstr(std::string("--at ") + text +
                                                        ": must be a "
                                                        "time of at least 0, such as 250, ")));
    }
    EXPECT_EQ(parse_time("--at", "4611686018427387000", 0), 4'611'686'018'427'386'880)
        << "the last double below 2^62 and those that round to it";
    EXPECT_THAT([] { (void)parse_time("--at", "4611686018427387904", 0); },
                ThrowsMessage<UsageError>(HasSubstr("must be a time")));
    EXPECT_THAT([] { (void)parse_time("--at", "1ms", 100); },
                ThrowsMessage<UsageError>(
                    HasSubstr("--at 1ms: must be a number of at least 0, in the unit of --costs")));
    EXPECT_THAT([] { (void)parse_time("--at", "1ms", 1); },
                ThrowsMessage<UsageError>(HasSubstr("in the unit of --costs")));
}

}  // namespace
}  // namespace vocabpipe::tool
