// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/batch_size_schedule.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>
#include <set>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

TEST(BatchSizeSchedule, IsAlwaysTheFullBatchWithoutWarmUp) {
    const BatchSizeSchedule sizes(12, {}, 3);
    EXPECT_EQ(sizes.at(0), 12);
    EXPECT_EQ(sizes.at(1'000'000), 12);
    EXPECT_EQ(sizes.microbatches(0), 4);
    EXPECT_TRUE(sizes.smaller().empty());
}

/// By counting how many whole shares of SAMPLES have been consumed, share by share.
int64_t by_counting(const BatchSizeRampUp& r, int64_t full, int64_t consumed) {
    if (consumed >= r.samples) return full;
    int64_t size = r.start;
    const int64_t increments = (full - r.start) / r.increment;
    for (int64_t i = 1; i <= increments; ++i) {
        if (consumed * increments >= i * r.samples) size += r.increment;
    }
    return size;
}

TEST(BatchSizeSchedule, GrowsByEqualSharesOfTheSamples) {
    for (const BatchSizeRampUp ramp_up : {BatchSizeRampUp{2, 2, 100}, BatchSizeRampUp{4, 6, 31},
                                          BatchSizeRampUp{2, 14, 1}, BatchSizeRampUp{8, 4, 1000}}) {
        const BatchSizeSchedule sizes(16, ramp_up, 2);
        std::set<int> seen;
        for (int64_t consumed = 0; consumed <= ramp_up.samples + 20; ++consumed) {
            ASSERT_EQ(sizes.at(consumed), by_counting(ramp_up, 16, consumed)) << consumed;
            ASSERT_EQ(sizes.microbatches(consumed) * 2, sizes.at(consumed));
            if (sizes.at(consumed) < 16) seen.insert(sizes.microbatches(consumed));
        }
        const std::vector<int> smaller = sizes.smaller();
        EXPECT_EQ(std::set(smaller.begin(), smaller.end()), seen);
    }
}

/// GPT-3's figures in Megatron's example script: 16 16 6000000 to 1536.
TEST(BatchSizeSchedule, IsMegatronsForItsOwnExample) {
    const BatchSizeSchedule sizes(1536, BatchSizeRampUp{16, 16, 6'000'000}, 8);
    EXPECT_EQ(sizes.at(0), 16);
    EXPECT_EQ(sizes.at(63'157), 16);  // 6000000 / 95 = 63157.9
    EXPECT_EQ(sizes.at(63'158), 32);
    EXPECT_EQ(sizes.at(5'999'999), 1520);
    EXPECT_EQ(sizes.at(6'000'000), 1536);
}

/// By taking step after step.
int64_t steps_by_counting(const BatchSizeSchedule& sizes, const BatchSizeRampUp& ramp_up,
                          int64_t full, int64_t samples) {
    int64_t steps = 0;
    int64_t consumed = 0;
    while (consumed <= ramp_up.samples && consumed <= samples) {
        consumed += sizes.at(consumed);
        ++steps;
    }
    return samples > consumed ? steps + (samples - consumed) / full : steps;
}

TEST(BatchSizeSchedule, MakesAsManyStepsOfSamplesAsMegatron) {
    const BatchSizeSchedule constant(12, {}, 3);
    EXPECT_EQ(constant.steps_of(11), 0);
    EXPECT_EQ(constant.steps_of(12), 1);
    EXPECT_EQ(constant.steps_of(1'000'007), 83'333);
    for (const BatchSizeRampUp ramp_up : {BatchSizeRampUp{2, 2, 100}, BatchSizeRampUp{4, 6, 31},
                                          BatchSizeRampUp{2, 14, 1}, BatchSizeRampUp{8, 4, 1000}}) {
        const BatchSizeSchedule sizes(16, ramp_up, 2);
        for (int64_t samples = 1; samples <= ramp_up.samples + 40; ++samples) {
            ASSERT_EQ(sizes.steps_of(samples), steps_by_counting(sizes, ramp_up, 16, samples))
                << samples << " of " << ramp_up.samples;
        }
    }
    // Megatron's example script: no loop over a million steps.
    const BatchSizeRampUp gpt3{16, 16, 5'859'375};
    const BatchSizeSchedule sizes(1536, gpt3, 8);
    EXPECT_EQ(sizes.steps_of(146'484'375), steps_by_counting(sizes, gpt3, 1536, 146'484'375));
}

TEST(BatchSizeSchedule, MayReachItsLimits) {
    const int64_t most = int64_t{1} << 46;
    const BatchSizeSchedule slow(16, BatchSizeRampUp{15, 1, most}, 1);
    EXPECT_EQ(slow.at(most - 1), 15);
    EXPECT_EQ(slow.at(most), 16);
    EXPECT_EQ(slow.smaller(), std::vector<int>{15});
    const BatchSizeSchedule many(65537, BatchSizeRampUp{1, 1, 10}, 1);
    EXPECT_EQ(many.smaller().size(), 65536U);
    const auto refusal = [](int64_t full, const BatchSizeRampUp& ramp_up) {
        return message_of<UsageError>([&] { (void)BatchSizeSchedule(full, ramp_up, 1); });
    };
    EXPECT_EQ(refusal(16, {15, 1, most + 1}),
              "--rampup-batch-size 15 1 70368744177665: SAMPLES must be at most 70368744177664");
    EXPECT_EQ(refusal(65538, {1, 1, 10}),
              "--rampup-batch-size 1 1 10: has 65537 increments, but must have at most 65536; use "
              "a larger INCREMENT");
    EXPECT_EQ(refusal(16, {17, 1, 10}),
              "--rampup-batch-size 17 1 10: START must be below --global-batch-size 16; remove "
              "the flag for batches of constant size");
    EXPECT_EQ(refusal(16, {3, 2, 10}),
              "--rampup-batch-size 3 2 10: the difference from START to --global-batch-size 16 is "
              "13 sequences, which must be a multiple of INCREMENT");
}

TEST(BatchSizeSchedule, RefusesWhatDoesNotFitTogether) {
    const auto refusal = [](BatchSizeRampUp ramp_up, int64_t unit = 2) {
        return message_of<UsageError>([&] { (void)BatchSizeSchedule(16, ramp_up, unit); });
    };
    EXPECT_THAT(refusal({0, 2, 10}), HasSubstr("--rampup-batch-size 0 2 10: START is 0"));
    EXPECT_THAT(refusal({2, 0, 10}), HasSubstr("INCREMENT is 0"));
    EXPECT_THAT(refusal({2, 2, 0}), HasSubstr("SAMPLES is 0"));
    EXPECT_THAT(refusal({2, 2, int64_t{1} << 60}), HasSubstr("SAMPLES must be at most"));
    EXPECT_THAT(refusal({16, 2, 10}), HasSubstr("START must be below --global-batch-size 16"));
    EXPECT_THAT(refusal({4, 8, 10}), HasSubstr("is 12 sequences"));
    EXPECT_THAT(message_of<UsageError>([] {
                    (void)BatchSizeSchedule(1 << 20, BatchSizeRampUp{1, 1, 10}, 1);
                }),
                HasSubstr("has 1048575 increments, but must have at most 65536; use a larger"));
    EXPECT_THAT(refusal({6, 5, 10}, 4), HasSubstr("6 is not a multiple of 4"));
    EXPECT_THAT(refusal({4, 6, 10}, 4), HasSubstr("6 is not a multiple of 4"));
}

}  // namespace
}  // namespace vocabpipe::testing
