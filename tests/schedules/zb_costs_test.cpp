// SPDX-License-Identifier: Apache-2.0
// What ZB(k) makes of costs, derived by hand: how many forwards come before the first I, and which
// holes W fills.
#include "schedules/placement.hpp"
#include "schedules/zb_greedy.hpp"
#include "tests/schedules/notation.hpp"
#include "tests/schedules/transformer_schedule.hpp"
#include "vocabpipe/pass_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using Lists = std::vector<std::string>;

int forwards_before_the_first_i(const std::vector<Pass>& list) {
    return static_cast<int>(
        std::ranges::find_if(list, [](const Pass& pass) { return pass.op != Op::F; }) -
        list.begin());
}

std::vector<int> warm_ups(const Schedule& schedule) {
    std::vector<int> all;
    for (const std::vector<Pass>& list : schedule.passes) {
        all.push_back(forwards_before_the_first_i(list));
    }
    return all;
}

std::vector<int> zb_warm_ups(int p, int m, int limit, const PassCosts& costs) {
    return warm_ups(transformer_passes_of(
        "zb", {.ranks = p, .microbatches = m, .rule = {.memory_limit = limit}, .costs = costs}));
}

// F, I, W = 1, 2, 1. F_0 begins at 0, 1 and 2; I_0 of the last rank ends at 5. Rank 1 has run F_0
// at 2 and F_1 to F_3 at 5, just in time; its I_0 ends at 7, before which rank 0 runs all six.
//
// The last rank has no holes from 2 to 26, and I_5 ends at 20 there, at 22 on rank 1 and at 24 on
// rank 0, which is done at 25 if it has but W_5 to do then.
TEST(ZeroBubbleWarmUp, HasTheForwardsThatEndJustWhenTheFirstGradientArrives) {
    const PassCosts costs = pass_costs({.f = 1, .i = 2, .w = 1});
    const Schedule schedule = transformer_passes_of(
        "zb", {.ranks = 3, .microbatches = 6, .rule = {.memory_limit = 6}, .costs = costs});
    EXPECT_EQ(warm_ups(schedule), (std::vector{6, 4, 1}));
    EXPECT_EQ(text_of(schedule.passes[1]),
              "1F0 1F1 1F2 1F3 1I0 1F4 1I1 1F5 1I2 1W0 1I3 1W1 1I4 1W2 1I5 1W3 1W4 1W5");
    const PassTimes times = time_passes(schedule, costs);
    EXPECT_EQ(times.makespan, 26);
    EXPECT_EQ(times.largest_span, 25);
}

// 2, 1, 1 and a hop of 1. F_0 begins at 0, 3 and 6, I_0 of the last rank ends at 9 and arrives at
// 10. Rank 1 has run F_0 at 5 and F_2 at 9; its I_0 ends at 11 and arrives at 12, just when rank 0
// has run F_5.
TEST(ZeroBubbleWarmUp, CountsHopsOnTheWayThereAndBack) {
    const PassCosts costs = pass_costs({.f = 2, .i = 1, .w = 1, .hop = 1});
    EXPECT_EQ(zb_warm_ups(3, 6, 6, costs), (std::vector{6, 3, 1}));
}

// The same on two ranks: I_0 of rank 1 ends at 6 and arrives at 7, between the ends of F_2 and F_3
// on rank 0. F_3 makes I_0 wait until 8, but I_3 arrives at 16 as early as can be, after which
// rank 0 has W_3 alone to do, until 18. With F_3 behind I_0 it would be done at 19.
TEST(ZeroBubbleWarmUp, HasAForwardThatBeginsBeforeTheFirstGradientArrivesWhereThatIsFaster) {
    const PassCosts costs = pass_costs({.f = 2, .i = 1, .w = 1, .hop = 1});
    for (const int limit : {4, 5}) {  // more than there are microbatches
        EXPECT_EQ(zb_warm_ups(2, 4, limit, costs), (std::vector{4, 1})) << limit;
    }
    // On three ranks: I_0 arrives at 10 on rank 1, whose F_3 ends at 11; I_0 there ends at 12 and
    // arrives at 13, when rank 0 has begun F_6.
    EXPECT_EQ(zb_warm_ups(3, 7, 7, costs), (std::vector{7, 4, 1}));
}

// 2, 2, 1: I_0 of rank 1 ends at 6, when F_2 has ended on rank 0; F_3 would begin then and not
// before.
TEST(ZeroBubbleWarmUp, HasNoForwardThatBeginsWhenTheFirstGradientArrives) {
    EXPECT_EQ(zb_warm_ups(2, 4, 4, pass_costs({.f = 2, .i = 2, .w = 1})), (std::vector{3, 1}));
}

// 1, 2, 1 and a hop of 1. F_0 begins at 0, 2 and 4, I_0 arrives at 8 on rank 1, which has run F_0
// at 3 and could run F_5 until then; rank 0 has no more than six either.
TEST(ZeroBubbleWarmUp, HasAForwardLessThanOnTheRankBefore) {
    EXPECT_EQ(zb_warm_ups(3, 6, 6, pass_costs({.f = 1, .i = 2, .w = 1, .hop = 1})),
              (std::vector{6, 5, 1}));
}

// F takes 1 on rank 0 and 2 on the others, I 3. F_0 begins at 0, 1 and 3, I_0 of rank 2 ends at 8.
// Rank 1 has run F_0 at 3 and F_2 at 7; its I_0 ends at 11.
TEST(ZeroBubbleWarmUp, IsByTheCostsOfTheRank) {
    PassCosts costs = pass_costs({.f = 2, .i = 3, .w = 1});
    costs.stage.resize(3, costs.stage.front());
    costs.stage[0][static_cast<size_t>(Op::F)] = 1;
    EXPECT_EQ(zb_warm_ups(3, 6, 6, costs), (std::vector{6, 3, 1}));
}

// --- the greedy rule -----------------------------------------------------------------------------

Lists lists_by(const PassCosts& costs, int p, int m, int limit, const GreedyChoice& choice) {
    Lists texts;
    for (const std::vector<Pass>& list :
         greedy_zero_bubble({.ranks = p, .microbatches = m, .costs = costs}, limit, choice)) {
        texts.push_back(text_of(list));
    }
    return texts;
}
Lists greedy_lists(const UnitCosts& costs, int p, int m, int limit, const GreedyChoice& choice) {
    return lists_by(pass_costs(costs), p, m, limit, choice);
}

// F, I, W = 1, 1, 2 and a hop of 1. Both have room for two microbatches.
//
//   rank 0   F0 0-1  F1 1-2  I0 5-6  W0 6-8  F2 8-9  I1 9-10  W1 10-12  I2 13-14  W2 14-16
//   rank 1   F0 2-3  I0 3-4  F1 4-5  I1 5-6  W0 6-8  W1 8-10  F2 10-11  I2 11-12  W2 12-14
//
// W1 of rank 1 fills the hole before F2, which arrives at 10. Without it rank 1 would have waited
// for 2, less than the 3 of rank 0.
TEST(ZeroBubbleGreedy, PutsAWThatFitsAHoleExactly) {
    for (const bool always_fill : {true, false}) {
        EXPECT_EQ(
            greedy_lists({.f = 1, .i = 1, .w = 2, .hop = 1}, 2, 3, 2, {.always_fill = always_fill}),
            (Lists{"0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1W0 1W1 1F2 1I2 1W2"}))
            << always_fill;
    }
}

// W takes 3: W0 of rank 1 ends at 9, and F2 arrives at 11.
TEST(ZeroBubbleGreedy, PutsALongerWIntoAHoleOnlyWhereItIsToldTo) {
    const UnitCosts costs{.f = 1, .i = 1, .w = 3, .hop = 1};
    const std::string first = "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2";
    EXPECT_EQ(greedy_lists(costs, 2, 3, 2, {.always_fill = true}),
              (Lists{first, "1F0 1I0 1F1 1I1 1W0 1W1 1F2 1I2 1W2"}));
    EXPECT_EQ(greedy_lists(costs, 2, 3, 2, {.always_fill = false}),
              (Lists{first, "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"}));
}

/// Forwards of rank 0 before its first I.
int greedy_warm_up(const UnitCosts& costs, int m, int limit, bool arrive_in_time) {
    const auto lists =
        greedy_zero_bubble({.ranks = 2, .microbatches = m, .costs = pass_costs(costs)}, limit,
                           {.arrive_in_time = arrive_in_time});
    return forwards_before_the_first_i(lists[0]);
}

// F takes 2, so F_0 ends at 2, and F_j at 2 + 2 j.
TEST(ZeroBubbleGreedy, WarmsUpUntilTheFirstGradientArrives) {
    // I_0 arrives at 2 + 2 + 1: F_2 begins before.
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 1}, 4, 4, true), 2);
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 1}, 4, 4, false), 3);
    // At 2 + 2 + 2: F_2 ends then and F_3 would begin then.
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 2}, 4, 4, true), 3);
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 2}, 4, 4, false), 3);
    // At 2 + 1 + 2 + 1 + 1: F_3 begins before.
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 1, .hop = 1}, 5, 5, true), 3);
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 1, .hop = 1}, 5, 5, false), 4);
    // No more than there is room for, or microbatches.
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 9}, 5, 3, true), 3);
    EXPECT_EQ(greedy_warm_up({.f = 2, .i = 9}, 3, 5, true), 3);
}

// F takes 10 on rank 0 and 1 on the others, I 3 on rank 2. I_0 arrives at 15 on rank 1, which has
// time for F_1 and F_2 from 11 on, but not their inputs: I_0 arrives at 16 on rank 0, within F_1.
TEST(ZeroBubbleGreedy, WarmsUpWithNoForwardThatTheRankBeforeHasAfterItsFirstGradient) {
    PassCosts costs = pass_costs({});
    costs.stage.resize(3, costs.stage.front());
    costs.stage[0][static_cast<size_t>(Op::F)] = 10;
    costs.stage[2][static_cast<size_t>(Op::I)] = 3;
    const std::string second = "1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2",
                      third = "2F0 2I0 2W0 2F1 2I1 2W1 2F2 2I2 2W2";
    EXPECT_EQ(lists_by(costs, 3, 3, 3, {.arrive_in_time = true}),
              (Lists{"0F0 0I0 0F1 0W0 0I1 0F2 0W1 0I2 0W2", second, third}));
    EXPECT_EQ(lists_by(costs, 3, 3, 3, {.arrive_in_time = false}),
              (Lists{"0F0 0F1 0I0 0F2 0W0 0I1 0W1 0I2 0W2", second, third}));
}

TEST(ZeroBubbleGreedy, HasListsThatCanRunInTheMemoryForAnyCosts) {
    std::mt19937 random(5);
    const auto up_to = [&](int most) { return 1 + static_cast<int>(random() % most); };
    for (int round = 0; round < 200; ++round) {
        const int p = 1 + up_to(4), m = up_to(8);
        PassCosts costs = pass_costs({.hop = up_to(3) - 1});
        costs.stage.assign(static_cast<size_t>(p), costs.stage.front());
        const int most = round % 2 == 0 ? 4 : 100;
        for (PassCosts::OpCosts& stage : costs.stage) {
            for (const Op op : {Op::F, Op::I, Op::W}) {
                stage[static_cast<size_t>(op)] = up_to(most);
            }
        }
        const int limit = p - 1 + up_to(p + 1);
        const ScheduleOptions options{
            .ranks = p, .microbatches = m, .vocab_mode = VocabMode::none, .costs = costs};
        for (const GreedyChoice& choice : kGreedyChoices) {
            const auto lists = greedy_zero_bubble(options, limit, choice);
            const Schedule schedule =
                transformer_schedule(options, Placement::straight, 1,
                                     [&](int rank) { return lists[static_cast<size_t>(rank)]; });
            ASSERT_NO_THROW((void)time_passes(schedule, costs)) << round;
            ASSERT_LE(std::ranges::max(peak_chunks(schedule)), limit) << round;
            for (const auto& list : lists) ASSERT_EQ(std::ssize(list), 3 * m) << round;
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
