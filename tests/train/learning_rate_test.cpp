// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/learning_rate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/train/options/check_options.hpp"
#include "src/train/options/train_flags.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

constexpr double kTiny = 1e-12;

TEST(LearningRate, RisesLinearlyThenFallsAlongACosine) {
    const LearningRateSchedule schedule{
        .lr = 1, .min_lr = 0.1, .warmup_iters = 4, .decay_iters = 12};
    EXPECT_EQ(schedule.after(0), 0);
    EXPECT_NEAR(schedule.after(1), 0.25, kTiny);
    EXPECT_NEAR(schedule.after(2), 0.5, kTiny);
    EXPECT_NEAR(schedule.after(3), 0.75, kTiny);
    EXPECT_NEAR(schedule.after(4), 1, kTiny);
    // 8 steps of decay: cos of 45, 60.. degrees by hand: 0.1 + 0.45 (1 + cos(180 k / 8)).
    EXPECT_NEAR(schedule.after(6), 0.868198051533946, kTiny);  // k = 2, cos 45 = 0.7071067811865476
    EXPECT_NEAR(schedule.after(8), 0.55, kTiny);               // k = 4, cos 90 = 0
    EXPECT_NEAR(schedule.after(10), 0.231801948466054, kTiny);  // k = 6
    EXPECT_NEAR(schedule.after(12), 0.1, kTiny);                // k = 8
}

TEST(LearningRate, StaysAtTheMinimumAfterTheLastStep) {
    const LearningRateSchedule schedule{
        .lr = 1, .min_lr = 0.1, .warmup_iters = 4, .decay_iters = 12};
    EXPECT_EQ(schedule.after(13), 0.1);
    EXPECT_EQ(schedule.after(1'000'000), 0.1);
}

TEST(LearningRate, BeforeTheFirstUpdateIsTheTopWithoutAWarmUp) {
    const LearningRateSchedule schedule{.lr = 2, .min_lr = 0, .warmup_iters = 0, .decay_iters = 3};
    EXPECT_EQ(schedule.after(0), 2);
    EXPECT_NEAR(schedule.after(1), 1.5, kTiny);  // 1 + cos 60
    EXPECT_NEAR(schedule.after(2), 0.5, kTiny);  // 1 + cos 120
    EXPECT_NEAR(schedule.after(3), 0, kTiny);
}

TEST(LearningRate, OfARunThatIsAllWarmUpEndsAtTheTop) {
    const LearningRateSchedule schedule{.lr = 3, .min_lr = 1, .warmup_iters = 3, .decay_iters = 3};
    EXPECT_NEAR(schedule.after(1), 1, kTiny);
    EXPECT_NEAR(schedule.after(3), 3, kTiny);
    EXPECT_EQ(schedule.after(4), 1);
}

TEST(LearningRate, OfASingleUpdateIsTheTop) {
    const LearningRateSchedule schedule{.lr = 3, .min_lr = 1, .warmup_iters = 0, .decay_iters = 1};
    EXPECT_EQ(schedule.after(0), 3);
    EXPECT_EQ(schedule.after(1), 1);
}

/// 4 steps up to 1, then 8 down to 0.1.
LearningRateSchedule of_style(DecayStyle style) {
    return {.lr = 1, .min_lr = 0.1, .warmup_iters = 4, .decay_iters = 12, .style = style};
}

TEST(LearningRate, WarmsUpFromWhereItIsTold) {
    LearningRateSchedule schedule = of_style(DecayStyle::linear);
    schedule.warmup_init = 0.2;
    const double expected[] = {0.2, 0.4, 0.6, 0.8, 1.0};
    for (int64_t updates = 0; updates <= 4; ++updates) {
        EXPECT_NEAR(schedule.after(updates), expected[updates], kTiny) << updates;
    }
}

TEST(LearningRate, FallsByTheSameAmountEveryStepWhenLinear) {
    const LearningRateSchedule schedule = of_style(DecayStyle::linear);
    EXPECT_NEAR(schedule.after(4), 1, kTiny);
    for (int64_t step = 5; step <= 12; ++step) {
        EXPECT_NEAR(schedule.after(step), 1 - 0.1125 * static_cast<double>(step - 4), kTiny)
            << step;
    }
    EXPECT_EQ(schedule.after(13), 0.1);
}

TEST(LearningRate, StaysAtTheTopForEverWhenConstant) {
    const LearningRateSchedule schedule = of_style(DecayStyle::constant);
    EXPECT_NEAR(schedule.after(2), 0.5, kTiny);
    for (const int64_t step : {4, 5, 12, 13, 1000}) EXPECT_EQ(schedule.after(step), 1) << step;
}

TEST(LearningRate, OfWsdStaysThenFallsInTheLastStepsAsItsStyleSays) {
    // The share of 1 - 0.1 that is left after 1, 2, 3, 4 of 4 steps.
    const struct {
        WsdDecayStyle style;
        double left[4];
    } table[] = {
        {WsdDecayStyle::linear, {0.75, 0.5, 0.25, 0}},
        {WsdDecayStyle::cosine, {0.853553390593274, 0.5, 0.146446609406726, 0}},
        // 2 2^(-k/4) - 1
        {WsdDecayStyle::exponential, {0.681792830507429, 0.414213562373095, 0.189207115002721, 0}},
        // 1 - sqrt(k/4)
        {WsdDecayStyle::minus_sqrt, {0.5, 0.292893218813452, 0.133974596215561, 0}}};
    for (const auto& [style, left] : table) {
        LearningRateSchedule schedule = of_style(DecayStyle::wsd);
        schedule.wsd_style = style;
        schedule.wsd_decay_iters = 4;
        for (int64_t step = 4; step <= 8; ++step) EXPECT_EQ(schedule.after(step), 1) << step;
        for (int64_t step = 9; step <= 12; ++step) {
            EXPECT_NEAR(schedule.after(step), 0.1 + 0.9 * left[step - 9], kTiny)
                << to_string(style) << " " << step;
        }
        EXPECT_EQ(schedule.after(13), 0.1);
    }
}

TEST(LearningRate, OfWsdMayFallRightAfterTheWarmUp) {
    LearningRateSchedule schedule = of_style(DecayStyle::wsd);
    schedule.wsd_style = WsdDecayStyle::linear;
    schedule.wsd_decay_iters = 8;
    for (int64_t step = 1; step <= 14; ++step) {
        EXPECT_NEAR(schedule.after(step), of_style(DecayStyle::linear).after(step), kTiny) << step;
    }
}

/// Shares of what is left of the decay, from 1 down to 0, after `done` of `steps` steps.
double left_of(const LearningRateSchedule& s, int64_t done, int64_t steps) {
    const double part = static_cast<double>(done) / static_cast<double>(steps);
    if (s.style == DecayStyle::linear) return 1 - part;
    if (s.style == DecayStyle::cosine) return (1 + std::cos(std::acos(-1) * part)) / 2;
    const int64_t flat = steps - s.wsd_decay_iters;
    if (done <= flat) return 1;
    const double fall = static_cast<double>(done - flat) / static_cast<double>(s.wsd_decay_iters);
    switch (s.wsd_style) {
        case WsdDecayStyle::linear:
            return 1 - fall;
        case WsdDecayStyle::cosine:
            return (1 + std::cos(std::acos(-1) * fall)) / 2;
        case WsdDecayStyle::exponential:
            return 2 * std::exp2(-fall) - 1;
        case WsdDecayStyle::minus_sqrt:
            return 1 - std::pow(fall, 0.5);
    }
    return -1;
}

TEST(LearningRate, IsWhatItsStyleSaysAfterEveryUpdateWhateverTheLengths) {
    for (const DecayStyle style :
         {DecayStyle::constant, DecayStyle::linear, DecayStyle::cosine, DecayStyle::wsd}) {
        for (int round = 0; round < 4 * 4 * 5; ++round) {
            LearningRateSchedule s{.lr = 3, .min_lr = 0.5, .style = style};
            s.warmup_iters = round % 4;
            s.decay_iters = s.warmup_iters + (s.warmup_iters == 0 ? 1 : 0) + round / 4 % 4;
            s.wsd_style = static_cast<WsdDecayStyle>(round % 4);
            const int64_t steps = s.decay_iters - s.warmup_iters;
            s.wsd_decay_iters = std::max<int64_t>(steps - round / 16, 1);
            if (s.warmup_iters > 0) s.warmup_init = 0.25;
            for (int64_t updates = 0; updates < s.decay_iters + 3; ++updates) {
                const int64_t done = updates - s.warmup_iters;
                double expected = s.lr;
                if (done < 0) {
                    expected = 0.25 + 2.75 * static_cast<double>(updates) /
                                          static_cast<double>(s.warmup_iters);
                } else if (done > 0 && done >= steps && style != DecayStyle::constant) {
                    expected = 0.5;
                } else if (done > 0 && style != DecayStyle::constant) {
                    expected = 0.5 + 2.5 * left_of(s, done, steps);
                }
                ASSERT_NEAR(s.after(updates), expected, kTiny)
                    << to_string(style) << " " << s.warmup_iters << " " << s.decay_iters << " "
                    << updates;
            }
        }
    }
}

TrainOptions some_options() {
    TrainOptions options;
    options.train_iters = 100;
    options.lr = 1;
    options.min_lr = 0.1;
    return options;
}

TEST(LearningRateFlags, DecayOverTheRunUnlessTheySayOtherwise) {
    TrainOptions options = some_options();
    EXPECT_EQ(learning_rate_schedule(options).decay_iters, 100);
    EXPECT_EQ(learning_rate_schedule(options).style, DecayStyle::cosine);
    options.learning_rate.decay_iters = 1000;
    options.learning_rate.warmup_fraction = 0.05;
    const LearningRateSchedule schedule = learning_rate_schedule(options);
    EXPECT_EQ(schedule.decay_iters, 1000);
    EXPECT_EQ(schedule.warmup_iters, 50);
}

TEST(LearningRateFlags, CountSamplesWhereTheRunDoes) {
    TrainOptions options = some_options();
    EXPECT_FALSE(learning_rate_schedule(options).by_samples);
    options.train_samples = 1'000;
    LearningRateSchedule schedule = learning_rate_schedule(options);
    EXPECT_TRUE(schedule.by_samples);
    EXPECT_EQ(schedule.decay_iters, 1'000);
    EXPECT_EQ(schedule.warmup_iters, 0);
    options.learning_rate.warmup_samples = 30;
    options.learning_rate.decay_samples = 900;
    schedule = learning_rate_schedule(options);
    // Batches of 8: the warm-up ends within the fourth, which no rate per step could say.
    EXPECT_NEAR(schedule.after(24), 0.8, kTiny);
    EXPECT_NEAR(schedule.after(30), 1, kTiny);
    EXPECT_LT(schedule.after(32), 1);
    EXPECT_EQ(schedule.after(900), 0.1);
    options.learning_rate.warmup_samples.reset();
    options.learning_rate.warmup_fraction = 0.1;
    EXPECT_EQ(learning_rate_schedule(options).warmup_iters, 90);
}

TEST(LearningRateFlags, HaveMegatronsNames) {
    for (const char* name : {"constant", "linear", "cosine", "WSD"}) {
        EXPECT_EQ(to_string(decay_style_from(name)), name);
    }
    for (const char* name : {"linear", "cosine", "exponential", "minus_sqrt"}) {
        EXPECT_EQ(to_string(wsd_decay_style_from(name)), name);
    }
    EXPECT_THROW((void)decay_style_from("wsd "), UsageError);
    EXPECT_THROW((void)wsd_decay_style_from("sqrt"), UsageError);
}

TEST(LearningRateFlags, MayReachTheirLimits) {
    TrainOptions options = some_options();
    options.lr = 0;
    options.min_lr = 0;
    EXPECT_EQ(learning_rate_schedule(options).lr, 0);
    options = some_options();
    options.min_lr = 1;
    options.lr_warmup_iters = 100;
    options.learning_rate.warmup_init = 1;
    LearningRateSchedule schedule = learning_rate_schedule(options);
    EXPECT_EQ(schedule.min_lr, 1);
    EXPECT_EQ(schedule.warmup_iters, 100);
    EXPECT_EQ(schedule.warmup_init, 1);
    EXPECT_EQ(schedule.wsd_decay_iters, 0);
    EXPECT_EQ(schedule.wsd_style, WsdDecayStyle::exponential);
    options.learning_rate = {.decay_iters = 1, .warmup_fraction = 1};
    options.lr_warmup_iters = 0;
    EXPECT_EQ(learning_rate_schedule(options).decay_iters, 1);
    EXPECT_EQ(learning_rate_schedule(options).warmup_iters, 1);
    options.learning_rate.warmup_fraction = 0;
    EXPECT_EQ(learning_rate_schedule(options).warmup_iters, 0);
    options = some_options();
    options.lr_warmup_iters = 10;
    options.learning_rate.style = DecayStyle::wsd;
    options.learning_rate.wsd_style = WsdDecayStyle::linear;
    for (const int64_t length : {1, 90}) {
        options.learning_rate.wsd_decay_iters = length;
        schedule = learning_rate_schedule(options);
        EXPECT_EQ(schedule.wsd_decay_iters, length);
        EXPECT_EQ(schedule.wsd_style, WsdDecayStyle::linear);
    }
}

TEST(LearningRateFlags, CountStepsOfSamples) {
    TrainOptions options = some_options();
    options.global_batch_size = 8;
    count_steps_of_samples(options);
    EXPECT_EQ(options.train_iters, 100) << "without samples";
    for (const auto& [samples, steps] : {std::pair(8, 1), {15, 1}, {16, 2}, {800, 100}}) {
        options.train_samples = samples;
        count_steps_of_samples(options);
        EXPECT_EQ(options.train_iters, steps) << samples;
    }
    options.train_samples = 7;
    try {
        count_steps_of_samples(options);
        ADD_FAILURE() << "7 samples are no step";
    } catch (const UsageError& error) {
        EXPECT_STREQ(error.what(),
                     "--train-samples 7: is less than one step of --global-batch-size 8; use more "
                     "samples");
    }
}

struct Refused {
    const char* says;
    void (*change)(TrainOptions& options);
};

TEST(LearningRateFlags, ThatContradictEachOtherAreRefused) {
    const Refused table[] = {
        {"--lr -1: must be", [](TrainOptions& o) { o.lr = -1; }},
        {"--lr nan: must be", [](TrainOptions& o) { o.lr = std::nan(""); }},
        {"--min-lr 2: must be between 0 and --lr 1", [](TrainOptions& o) { o.min_lr = 2; }},
        {"--lr-decay-iters 0: must be at least 1",
         [](TrainOptions& o) { o.learning_rate.decay_iters = 0; }},
        {"--lr-warmup-iters 101: must be between 0 and --train-iters 100",
         [](TrainOptions& o) { o.lr_warmup_iters = 101; }},
        {"--lr-warmup-iters 20: must be between 0 and --lr-decay-iters 10",
         [](TrainOptions& o) {
             o.lr_warmup_iters = 20;
             o.learning_rate.decay_iters = 10;
         }},
        {"--lr-warmup-fraction 0.5: --lr-warmup-iters 3 already sets the warm-up",
         [](TrainOptions& o) {
             o.lr_warmup_iters = 3;
             o.learning_rate.warmup_fraction = 0.5;
         }},
        {"--lr-warmup-fraction 1.5: must be between 0 and 1",
         [](TrainOptions& o) { o.learning_rate.warmup_fraction = 1.5; }},
        {"--lr-warmup-init 0.5: requires a warm-up",
         [](TrainOptions& o) { o.learning_rate.warmup_init = 0.5; }},
        {"--lr-warmup-init 2: must be between 0 and --lr 1",
         [](TrainOptions& o) {
             o.lr_warmup_iters = 3;
             o.learning_rate.warmup_init = 2;
         }},
        {"--lr-decay-style WSD: requires --lr-wsd-decay-iters",
         [](TrainOptions& o) { o.learning_rate.style = DecayStyle::wsd; }},
        {"--lr-wsd-decay-iters 91: must be between 1 and the 90 steps after the warm-up",
         [](TrainOptions& o) {
             o.lr_warmup_iters = 10;
             o.learning_rate.style = DecayStyle::wsd;
             o.learning_rate.wsd_decay_iters = 91;
         }},
        {"--lr-warmup-fraction -0.1: must be between 0 and 1",
         [](TrainOptions& o) { o.learning_rate.warmup_fraction = -0.1; }},
        {"--lr-warmup-init -0.5: must be between 0 and --lr 1",
         [](TrainOptions& o) {
             o.lr_warmup_iters = 3;
             o.learning_rate.warmup_init = -0.5;
         }},
        {"--lr-warmup-iters -1: must be between 0 and --train-iters 100",
         [](TrainOptions& o) { o.lr_warmup_iters = -1; }},
        {"--min-lr -0.5: must be between 0 and --lr 1", [](TrainOptions& o) { o.min_lr = -0.5; }},
        {"--lr inf: must be", [](TrainOptions& o) { o.lr = INFINITY; }},
        {"--lr-wsd-decay-iters 0: must be between 1 and the 100 steps after the warm-up",
         [](TrainOptions& o) {
             o.learning_rate.style = DecayStyle::wsd;
             o.learning_rate.wsd_decay_iters = 0;
         }},
        {"--lr-warmup-samples 3: counts samples, but --train-iters steps; use --lr-warmup-iters",
         [](TrainOptions& o) { o.learning_rate.warmup_samples = 3; }},
        {"--lr-decay-samples 3: counts samples, but --train-iters steps; use --lr-decay-iters",
         [](TrainOptions& o) { o.learning_rate.decay_samples = 3; }},
        {"--lr-warmup-iters 3: counts steps, but --train-samples samples; use "
         "--lr-warmup-samples",
         [](TrainOptions& o) {
             o.train_samples = 100;
             o.lr_warmup_iters = 3;
         }},
        {"--lr-decay-iters 5: counts steps, but --train-samples samples; use --lr-decay-samples",
         [](TrainOptions& o) {
             o.train_samples = 100;
             o.learning_rate.decay_iters = 5;
         }},
        {"--lr-wsd-decay-samples 5: counts samples, but --train-iters steps; use "
         "--lr-wsd-decay-iters",
         [](TrainOptions& o) { o.learning_rate.wsd_decay_samples = 5; }},
        {"--lr-decay-style WSD: requires --lr-wsd-decay-samples N",
         [](TrainOptions& o) {
             o.train_samples = 100;
             o.learning_rate.style = DecayStyle::wsd;
         }},
        {"--lr-wsd-decay-iters 5: requires --lr-decay-style WSD, got cosine",
         [](TrainOptions& o) { o.learning_rate.wsd_decay_iters = 5; }},
        {"--lr-wsd-decay-style linear: requires --lr-decay-style WSD, got constant",
         [](TrainOptions& o) {
             o.learning_rate.style = DecayStyle::constant;
             o.learning_rate.wsd_style = WsdDecayStyle::linear;
         }}};
    for (const Refused& row : table) {
        TrainOptions options = some_options();
        row.change(options);
        try {
            (void)learning_rate_schedule(options);
            ADD_FAILURE() << row.says;
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), ::testing::StartsWith(row.says));
        }
    }
}

}  // namespace
}  // namespace vocabpipe
