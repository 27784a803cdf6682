// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/progress_bar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace vocabpipe {
namespace {

constexpr Progress kHalf{.step = 50,
                         .last_step = 100,
                         .loss = 3.14159,
                         .tokens_per_second = 1234.4,
                         .seconds_left = 3725};

TEST(ProgressText, HasBarStepLossTimeLeftAndSpeed) {
    EXPECT_EQ(progress_text(kHalf, 80),
              "[#############.............] 50/100 | loss 3.1416 | 1:02:05 left | 1234 tokens/s");
}

TEST(ProgressText, FitsIntoEveryWidth) {
    for (int columns = 0; columns < 200; ++columns) {
        EXPECT_LE(progress_text(kHalf, columns).size(), static_cast<size_t>(columns));
    }
    EXPECT_EQ(progress_text(kHalf, 200).size(), 40u + 3 + 51);  // a bar grows no wider
}

TEST(ProgressText, LeavesOutSpeedThenTimeThenLossWhereItIsNarrow) {
    EXPECT_EQ(progress_text(kHalf, 40), "50/100 | loss 3.1416 | 1:02:05 left");
    EXPECT_EQ(progress_text(kHalf, 30), "[###....] 50/100 | loss 3.1416");
    EXPECT_EQ(progress_text(kHalf, 12), "50/100");
    EXPECT_EQ(progress_text(kHalf, 3), "50/");
    EXPECT_EQ(progress_text(kHalf, -1), "");
}

TEST(ProgressText, SaysDaysAndWhatIsNoTime) {
    Progress progress = kHalf;
    progress.seconds_left = 3 * 86400 + 5 * 3600;
    EXPECT_THAT(progress_text(progress, 80), ::testing::HasSubstr("| 3d 05h left |"));
    progress.seconds_left = std::numeric_limits<double>::infinity();
    EXPECT_THAT(progress_text(progress, 80), ::testing::HasSubstr("| ? left |"));
    progress.seconds_left = std::nan("");
    progress.loss = std::nan("");
    EXPECT_THAT(progress_text(progress, 80), ::testing::HasSubstr("loss nan | ? left"));
}

TEST(ProgressText, HasSecondsUpAndDaysFromADayOn) {
    const auto left = [](double seconds) {
        Progress progress = kHalf;
        progress.seconds_left = seconds;
        const std::string text = progress_text(progress, 58);
        const std::string head = "50/100 | loss 3.1416 | ", tail = " left | 1234 tokens/s";
        const size_t begin = text.find(head) + head.size();
        EXPECT_TRUE(text.ends_with(tail)) << text;
        return text.substr(begin, text.size() - tail.size() - begin);
    };
    EXPECT_EQ(left(-5), "0:00:00");
    EXPECT_EQ(left(0), "0:00:00");
    EXPECT_EQ(left(0.1), "0:00:01");
    EXPECT_EQ(left(59), "0:00:59");
    EXPECT_EQ(left(60), "0:01:00");
    EXPECT_EQ(left(3599.5), "1:00:00");
    EXPECT_EQ(left(86399), "23:59:59");
    EXPECT_EQ(left(86400), "1d 00h");
    EXPECT_EQ(left(86400 + 7199), "1d 01h");
    EXPECT_EQ(left(1e8 - 1), "1157d 09h");
    EXPECT_EQ(left(1e8), "?");
}

TEST(ProgressText, IsCutAtTheWidthWhereAPartEnds) {
    // 51 columns of text; a bar takes three more than its marks, of which it has five or more.
    const std::string text = "50/100 | loss 3.1416 | 1:02:05 left | 1234 tokens/s";
    EXPECT_EQ(progress_text(kHalf, 51), text);
    EXPECT_EQ(progress_text(kHalf, 50), "[######......] 50/100 | loss 3.1416 | 1:02:05 left");
    EXPECT_EQ(progress_text(kHalf, 58), text);
    EXPECT_EQ(progress_text(kHalf, 59), "[##...] " + text);
    EXPECT_EQ(progress_text(kHalf, 94),
              "[" + std::string(20, '#') + std::string(20, '.') + "] " + text);
    EXPECT_EQ(progress_text(kHalf, 95), progress_text(kHalf, 94));
    EXPECT_EQ(progress_text(kHalf, 6), "50/100");
    EXPECT_EQ(progress_text(kHalf, 5), "50/10");
    EXPECT_EQ(progress_text(kHalf, 1), "5");
    EXPECT_EQ(progress_text(kHalf, 0), "");
    Progress beyond = kHalf;
    beyond.step = 200;
    EXPECT_EQ(progress_text(beyond, 30), "[######] 200/100 | loss 3.1416");
}

TEST(ProgressText, IsFullAtTheEndAndOfARunWithoutSteps) {
    Progress progress = kHalf;
    progress.step = 100;
    EXPECT_THAT(progress_text(progress, 80),
                ::testing::StartsWith("[" + std::string(25, '#') + "]"));
    progress = {};
    EXPECT_THAT(progress_text(progress, 80), ::testing::HasSubstr(".] 0/0"));
}

TEST(ProgressBar, PrintsNothingWithoutATerminal) {
    ::testing::internal::CaptureStdout();
    {
        ProgressBar bar({}, 10);
        bar.show({.step = 1, .step_seconds = 1});
        bar.clear();
    }
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(ProgressBar, RewritesItsLineAndLeavesNothingBehind) {
    ::testing::internal::CaptureStdout();
    {
        ProgressBar bar([] { return 20; }, 10);
        bar.show({.step = 1, .step_seconds = 1});
        bar.show({.step = 2, .step_seconds = 1});  // too soon to be shown
        bar.clear();
        bar.show({.step = 3, .step_seconds = 1});
    }
    EXPECT_EQ(::testing::internal::GetCapturedStdout(),
              "\r\033[K1/10 | loss 0.0000\r\033[K\r\033[K3/10 | loss 0.0000\r\033[K");
}

}  // namespace
}  // namespace vocabpipe
