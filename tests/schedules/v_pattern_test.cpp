// SPDX-License-Identifier: Apache-2.0
#include "schedules/v_pattern_ends.hpp"
#include "schedules/v_pattern_refine.hpp"

#include <gtest/gtest.h>

#include <vector>

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

Row row_of(const std::vector<Kind>& kinds) {
    Row row;
    for (const Kind kind : kinds) row.push_back({0, kind});
    return row;
}
std::vector<Kind> kinds_of(const Row& row) {
    std::vector<Kind> kinds;
    for (const Cell& cell : row) kinds.push_back(cell.kind);
    return kinds;
}

// With room for four, half of it at most is for F1: one on the first rank, on the last two and not
// three. There microbatch 0 turns, so that F1 follows the first F0; above F0 alone have its way
// there and back to fill.
TEST(VPatternWarmUp, HasAsManyF1AsThereAreRanksAboveAndInHalfTheMemory) {
    Rows rows{row_of({F0, F0, F1, I1, W1, F0, F0, I0, W0, F1}),
              row_of({F0, F1, F0, I1, W1, F0, F1, I0}),
              row_of({F0, F1, F0, I1, W1, F1, F0, I0, W0})};
    ASSERT_EQ(peak(rows), 4);
    lay_out_warm_up(rows);
    EXPECT_EQ(kinds_of(rows[0]), (std::vector{F0, F0, F0, F1, I1, W1, F0, I0, W0, F1}));
    EXPECT_EQ(kinds_of(rows[1]), (std::vector{F0, F0, F1, F1, I1, W1, F0, I0}));
    EXPECT_EQ(kinds_of(rows[2]), (std::vector{F0, F1, F0, F1, I1, W1, F0, I0, W0}));
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
