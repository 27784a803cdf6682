// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/v_figures.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

TEST(VOneFOneB, MeetsTheOracles) {
    EXPECT_EQ(expect_oracles_met("V-1F1B", "v-1f1b"), 9);
}

TEST(VOneFOneB, HasTheBubbleAndThePeakOfTheFormulaOnEveryRank) {
    for (int p = 2; p <= 16; ++p) {
        for (const int m : {2 * p, 3 * p + 1, 5 * p}) {
            SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
            const Schedule schedule = v_schedule("v-1f1b", {.ranks = p, .microbatches = m});
            const int64_t bubble = time_passes(schedule, unit_costs()).makespan - 6 * m;
            EXPECT_LE(bubble, 5 * p - (p % 3 == 1 ? 5 : 6));
            EXPECT_GE(bubble, 5 * p - (p % 3 == 1 ? 5 : 9));
            EXPECT_EQ(highest_peak(schedule), 2 * (2 * p / 3) + 2);
            EXPECT_EQ(lowest_peak(schedule), 2 * (2 * p / 3) + 2);
        }
    }
}

TEST(VOneFOneB, DoesNotSplitTheBackward) {
    const Schedule schedule = v_schedule("v-1f1b", {.ranks = 3, .microbatches = 4});
    for (const auto& list : schedule.passes) {
        for (const Pass& pass : list) EXPECT_TRUE(pass.op == Op::F || pass.op == Op::B);
    }
}

TEST(VOneFOneB, IsValidForEveryNumberOfMicrobatches) {
    for (int p = 1; p <= 9; ++p) {
        for (int m = 1; m <= 2 * p + 2; ++m) {
            SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
            ASSERT_NO_THROW((void)v_schedule("v-1f1b", {.ranks = p, .microbatches = m}));
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
