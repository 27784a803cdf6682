// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/progress_bar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
