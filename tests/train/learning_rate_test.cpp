// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/learning_rate.hpp"

#include <gtest/gtest.h>

namespace vocabpipe {
namespace {

constexpr double kTiny = 1e-12;

TEST(LearningRate, RisesLinearlyThenFallsAlongACosine) {
    const LearningRateSchedule schedule{
        .lr = 1, .min_lr = 0.1, .warmup_iters = 4, .decay_iters = 12};
    EXPECT_NEAR(schedule.at(1), 0.25, kTiny);
    EXPECT_NEAR(schedule.at(2), 0.5, kTiny);
    EXPECT_NEAR(schedule.at(3), 0.75, kTiny);
    EXPECT_NEAR(schedule.at(4), 1, kTiny);
    // 8 steps of decay: cos of 45, 60.. degrees by hand: 0.1 + 0.45 (1 + cos(180 k / 8)).
    EXPECT_NEAR(schedule.at(6), 0.868198051533946, kTiny);   // k = 2, cos 45 = 0.7071067811865476
    EXPECT_NEAR(schedule.at(8), 0.55, kTiny);                // k = 4, cos 90 = 0
    EXPECT_NEAR(schedule.at(10), 0.231801948466054, kTiny);  // k = 6
    EXPECT_NEAR(schedule.at(12), 0.1, kTiny);                // k = 8
}

TEST(LearningRate, StaysAtTheMinimumAfterTheLastStep) {
    const LearningRateSchedule schedule{
        .lr = 1, .min_lr = 0.1, .warmup_iters = 4, .decay_iters = 12};
    EXPECT_EQ(schedule.at(13), 0.1);
    EXPECT_EQ(schedule.at(1'000'000), 0.1);
}

TEST(LearningRate, WithoutWarmUpStartsOneStepDownTheCosine) {
    const LearningRateSchedule schedule{.lr = 2, .min_lr = 0, .warmup_iters = 0, .decay_iters = 3};
    EXPECT_NEAR(schedule.at(1), 1.5, kTiny);  // 1 + cos 60
    EXPECT_NEAR(schedule.at(2), 0.5, kTiny);  // 1 + cos 120
    EXPECT_NEAR(schedule.at(3), 0, kTiny);
}

TEST(LearningRate, OfARunThatIsAllWarmUpEndsAtTheTop) {
    const LearningRateSchedule schedule{.lr = 3, .min_lr = 1, .warmup_iters = 3, .decay_iters = 3};
    EXPECT_NEAR(schedule.at(1), 1, kTiny);
    EXPECT_NEAR(schedule.at(3), 3, kTiny);
    EXPECT_EQ(schedule.at(4), 1);
}

TEST(LearningRate, OfASingleStepIsTheMinimum) {
    const LearningRateSchedule schedule{.lr = 3, .min_lr = 1, .warmup_iters = 0, .decay_iters = 1};
    EXPECT_EQ(schedule.at(1), 1);
}

}  // namespace
}  // namespace vocabpipe
