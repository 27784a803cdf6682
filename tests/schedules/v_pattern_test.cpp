// SPDX-License-Identifier: Apache-2.0
#include "schedules/v_pattern_refine.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

using namespace v_pattern;

TEST(VPatternRefine, KeepsTheLimitAndGetsNoWorse) {
    // One rank with both chunks, W late: the limit forbids a second microbatch before the first W.
    Rows rows{{{0, F0},
               {0, F1},
               {0, I1},
               {0, I0},
               {0, W1},
               {0, W0},
               {0, F0},
               {0, F1},
               {0, I1},
               {0, I0},
               {0, W1},
               {0, W0}}};
    const Costs costs = Costs::unit(1);
    EXPECT_EQ(refine(rows, costs, {.limit = 2, .budget = 10'000}), 24);
    EXPECT_EQ(peak(rows), 2);
}

TEST(VPatternRefine, FindsThatAPassComesTooLate) {
    // Rank 1 lets rank 0 wait for its second chunk.
    Rows rows{{{0, F0}, {0, F1}, {0, I1}, {0, I0}, {0, W1}, {0, W0}},
              {{0, F0}, {0, F1}, {0, I1}, {0, W1}, {0, I0}, {0, W0}}};
    const Costs costs = Costs::unit(2);
    Clock clock;
    ASSERT_TRUE(clock.run(rows, costs));
    const int64_t before = score(clock);
    EXPECT_EQ(before, 22);
    EXPECT_EQ(refine(rows, costs, {.limit = 2, .budget = 100'000}), 18);
}

TEST(VPatternClock, SeesThatRowsWaitForEachOther) {
    Rows rows{{{0, F1}, {0, F0}}, {{0, F0}, {0, F1}}};
    EXPECT_FALSE(Clock().run(rows, Costs::unit(2)));
}

TEST(VPatternClock, AddsTheLatencyBetweenRanksOnly) {
    Rows rows{{{0, F0}, {0, F1}}, {{0, F0}, {0, F1}}};
    Costs costs = Costs::unit(2);
    costs.hop = 10;
    Clock clock;
    ASSERT_TRUE(clock.run(rows, costs));
    EXPECT_EQ(rows[1][0].at, 11);
    EXPECT_EQ(rows[1][1].at, 12);
    EXPECT_EQ(rows[0][1].at, 23);
    EXPECT_EQ(clock.makespan(), 24);
    EXPECT_EQ(clock.largest_span(), 24);
}

}  // namespace
}  // namespace vocabpipe::testing
