// SPDX-License-Identifier: Apache-2.0
// ZB(k), ZB-V and DualPipeV; formulas of docs/schedules.md, "Schedule families".
#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/validate.hpp"

#include "tests/schedules/paired_times.hpp"
#include "tests/schedules/transformer_schedule.hpp"
#include "tests/support/brute_force_checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace vocabpipe::testing {
namespace {

using ::testing::Each;
using ::testing::Le;

TEST(ZeroBubble, LosesAUnitOfBubblePerActivation) {
    for (int p = 1; p <= 8; ++p) {
        for (int k = p; k <= 2 * p - 1; ++k) {
            for (int m = k; m <= 4 * p; ++m) {
                const Schedule schedule = transformer_passes_of(
                    "zb", {.ranks = p, .microbatches = m, .rule = {.memory_limit = k}});
                const PassTimes times = time_passes(schedule, pass_costs({}));
                ASSERT_EQ(times.makespan, 3 * m + p - 1);
                ASSERT_EQ(times.largest_span, 3 * m + 2 * p - 1 - k);
                ASSERT_THAT(peak_chunks(schedule), Each(k));
            }
        }
    }
}

TEST(ZeroBubble, H1HasTheSpanOfTheFormulaForAnyCosts) {
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        const auto cost = [&] { return 1 + static_cast<int64_t>(random() % 20); };
        const UnitCosts costs{cost(), cost(), cost()};
        for (int p = 2; p <= 6; ++p) {
            const int m = p + 1 + static_cast<int>(random() % 10);
            const Schedule schedule =
                transformer_passes_of("zb-h1", {.ranks = p, .microbatches = m});
            EXPECT_EQ(time_passes(schedule, pass_costs(costs)).largest_span,
                      m * (costs.f + costs.i + costs.w) +
                          (p - 1) * (costs.i + std::max<int64_t>(0, costs.f - costs.w)))
                << costs.f << " " << costs.i << " " << costs.w << " p=" << p << " m=" << m;
        }
    }
}

TEST(ZeroBubble, H2HasNoBubbleInAnySpan) {
    for (int p = 1; p <= 8; ++p) {
        for (int m = 2 * p - 1; m <= 4 * p; ++m) {
            const Schedule schedule =
                transformer_passes_of("zb-h2", {.ranks = p, .microbatches = m});
            EXPECT_EQ(time_passes(schedule, pass_costs({})).largest_span, 3 * m);
            EXPECT_THAT(peak_chunks(schedule), Each(2 * p - 1));
        }
    }
}

// Random costs per stage and latency: never slower than the closed form, never above the limit.
TEST(ZeroBubble, MakesItsWarmUpForTheCosts) {
    std::mt19937 random(2);
    int faster = 0;
    for (int round = 0; round < 500; ++round) {
        const auto below = [&](int limit) { return static_cast<int>(random() % unsigned(limit)); };
        const int p = 2 + below(4);
        const int k = p + below(2 * p);
        ScheduleOptions options{
            .ranks = p, .microbatches = 1 + below(4 * p), .rule = {.memory_limit = k}};
        const Schedule closed_form = transformer_passes_of("zb", options);
        options.costs.stage.resize(static_cast<size_t>(p));
        for (auto& stage : options.costs.stage) {
            for (const Op op : {Op::F, Op::I, Op::W}) {
                stage[static_cast<size_t>(op)] = below(20);
            }
        }
        options.costs.hop = below(10);
        const Schedule made = transformer_passes_of("zb", options);
        ASSERT_EQ(brute_force_fault(made), "");
        ASSERT_FALSE(find_violation(made).has_value());
        ASSERT_THAT(peak_chunks(made), Each(Le(k)));
        const int64_t before = time_passes(closed_form, options.costs).makespan;
        const int64_t after = time_passes(made, options.costs).makespan;
        ASSERT_LE(after, before);
        if (after < before) ++faster;
    }
    EXPECT_GT(faster, 50);
}

TEST(ZeroBubble, RefusesLessMemoryThanOneMicrobatchPerRank) {
    try {
        (void)transformer_passes_of("zb",
                                    {.ranks = 4, .microbatches = 8, .rule = {.memory_limit = 3}});
        FAIL() << "accepted";
    } catch (const UsageError& error) {
        EXPECT_STREQ(
            error.what(),
            "RuleOptions::memory_limit 3: must be at least 4, because zb keeps one microbatch in "
            "flight for each of the 4 ranks; V schedules need less");
    }
}

TEST(ZeroBubble, TakesAnyLargerLimit) {
    EXPECT_THAT(peak_chunks(transformer_passes_of(
                    "zb", {.ranks = 4, .microbatches = 20, .rule = {.memory_limit = 2147483647}})),
                Each(7));
}

TEST(ZeroBubbleV, HasNoBubbleInAnySpanAtTheMemoryOfOneFOneB) {
    for (int p = 1; p <= 8; ++p) {
        for (int m = 2 * p - 1; m <= 4 * p; ++m) {
            const Schedule schedule =
                transformer_passes_of("zb-v", {.ranks = p, .microbatches = m});
            const PassTimes times = time_passes(schedule, pass_costs({}));
            EXPECT_EQ(times.largest_span, 6 * m) << "p=" << p << " m=" << m;
            EXPECT_EQ(times.makespan, 6 * m + p - 1) << "p=" << p << " m=" << m;
            EXPECT_THAT(peak_chunks(schedule), Each(Le(2 * p)));
            EXPECT_EQ(peak_chunks(schedule).back(), 2 * p);
        }
    }
}

TEST(DualPipeV, IdlesAsLongAsTheFormulaSaysAndHoldsOneChunkMoreThanZbV) {
    for (const UnitCosts& costs : {UnitCosts{1, 1, 1}, UnitCosts{10, 12, 8}, UnitCosts{5, 9, 2}}) {
        for (int p = 2; p <= 6; ++p) {
            for (int m = 2 * p; m <= 4 * p; ++m) {
                const Schedule schedule =
                    transformer_passes_of("dualpipe-v", {.ranks = p, .microbatches = m});
                EXPECT_THAT(peak_chunks(schedule), Each(2 * p + 1));
                const PassTimes times = time_pairs(schedule, pass_costs(costs));
                int64_t idle = 0;
                for (size_t r = 0; r < times.span.size(); ++r) {
                    idle = std::max(idle, times.span[r] - times.busy[r]);
                }
                EXPECT_EQ(idle, (p - 1) * (costs.f + 2 * costs.i - costs.w) -
                                    std::min(costs.f, (p - 1) * (costs.i - costs.f)))
                    << "p=" << p << " m=" << m;
            }
        }
    }
}

// Without real overlap: 54 with indivisible pairs, 51 with the pairs taken apart (4.6).
TEST(DualPipeV, IsAsFastAsZbVWithItsPairsTakenApart) {
    const Schedule schedule = transformer_passes_of("dualpipe-v", {.ranks = 4, .microbatches = 8});
    EXPECT_EQ(time_pairs(schedule, pass_costs({})).makespan, 54);
    EXPECT_EQ(time_passes(schedule, pass_costs({})).makespan, 51);
}

// Half a pair is an ordinary pass.
TEST(DualPipeV, DropsMicrobatchesBelowTheLeastNumberOfTheRule) {
    EXPECT_THAT(lists_of(transformer_passes_of("dualpipe-v", {.ranks = 2, .microbatches = 2})),
                ::testing::ElementsAre("0F0 0F1 3F0 3I0 3W0 3F1 3B1 0B0 0B1",
                                       "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1"));
}

}  // namespace
}  // namespace vocabpipe::testing
