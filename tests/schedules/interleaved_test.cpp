// SPDX-License-Identifier: Apache-2.0
// The families that place stages in a loop; formulas of docs/schedules.md.
#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/validate.hpp"

#include "tests/schedules/transformer_schedule.hpp"
#include "tests/support/brute_force_checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace vocabpipe::testing {
namespace {

const UnitCosts kCosts[] = {{1, 1, 1}, {10, 12, 8}, {7, 3, 1}};

template <typename Check>
void for_each_size(int most_ranks, const Check& check) {
    for (int p = 1; p <= most_ranks; ++p) {
        for (int m = 1; m <= 3 * p; ++m) {
            for (int v = 1; v <= 4; ++v) {
                SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m) +
                             " v=" + std::to_string(v));
                check(ScheduleOptions{.ranks = p, .microbatches = m, .rule = {.chunks = v}});
                if (::testing::Test::HasFatalFailure()) return;
            }
        }
    }
}

TEST(Interleaved, IsValidForEveryGroupSizeAndDepth) {
    for (const char* family : {"interleaved", "interleaved-zb"}) {
        for_each_size(6, [&](ScheduleOptions options) {
            for (int group = 1; group <= 2 * options.ranks; ++group) {
                const int deepest = generator(family).warm_up_depth ? 3 : 0;
                for (int depth = 0; depth <= deepest; ++depth) {
                    options.rule.group_size = group;
                    options.rule.warm_up_depth = depth;
                    const Schedule schedule = transformer_passes_of(family, options);
                    const auto violation = find_violation(schedule);
                    ASSERT_FALSE(violation.has_value())
                        << family << " N=" << group << " D=" << depth << violation->message();
                    if (options.ranks <= 3) {
                        ASSERT_EQ(brute_force_fault(schedule), "");
                    }
                }
            }
        });
    }
}

TEST(Interleaved, HasTheBubbleOfOneFOneBInChunks) {
    for (const UnitCosts& costs : kCosts) {
        for_each_size(6, [&](const ScheduleOptions& options) {
            const int p = options.ranks;
            if (options.microbatches % p != 0) return;
            const int64_t passes = options.microbatches * options.rule.chunks + p - 1;
            ASSERT_EQ(time_passes(transformer_passes_of("interleaved", options), pass_costs(costs))
                          .makespan,
                      passes * (costs.f + costs.i + costs.w));
        });
    }
}

TEST(Interleaved, PaysForLatencyOnlyInFillAndDrain) {
    for (int64_t hop = 0; hop <= 10; ++hop) {
        for_each_size(5, [&](const ScheduleOptions& options) {
            const int p = options.ranks;
            const int v = options.rule.chunks;
            if (options.microbatches % p != 0 || p == 1) return;
            ASSERT_EQ(time_passes(transformer_passes_of("interleaved", options),
                                  pass_costs({10, 12, 8, hop}))
                          .makespan,
                      (options.microbatches * v + p - 1) * 30 + 2 * hop * (p * v - 1));
        });
    }
}

TEST(Interleaved, HoldsWhatTheFormulaSays) {
    for_each_size(6, [](ScheduleOptions options) {
        const int p = options.ranks;
        const int m = options.microbatches;
        const int v = options.rule.chunks;
        for (int group = p; group <= m; ++group) {
            if (m % group != 0 && m % group < p) continue;  // filled up, then cut
            options.rule.group_size = group;
            for (int depth = 1; depth <= 2; ++depth) {
                options.rule.warm_up_depth = depth;
                const auto peaks = peak_chunks(transformer_passes_of("interleaved", options));
                for (int r = 0; r < p; ++r) {
                    ASSERT_EQ(peaks[static_cast<size_t>(r)],
                              std::min(m * v, (v - 1) * group + 2 * (p - 1 - r) + depth));
                }
            }
        }
    });
}

TEST(Interleaved, RunsAllMicrobatchesAsOneGroupBelowTheNumberOfRanks) {
    EXPECT_THAT(lists_of(transformer_passes_of(
                    "interleaved", {.ranks = 2, .microbatches = 1, .rule = {.chunks = 2}})),
                ::testing::ElementsAre("0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"));
}

// Megatron's order in its own notation, chunks from 1, backwards negative, for p = 2, N = 3, m = 5,
// v = 2, rank 0: 1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1
TEST(Interleaved, IsMegatronsOrderForALargerGroup) {
    EXPECT_EQ(lists_of(transformer_passes_of(
                  "interleaved",
                  {.ranks = 2, .microbatches = 5, .rule = {.chunks = 2, .group_size = 3}}))[0],
              "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4");
}

TEST(InterleavedZeroBubble, HasAThirdOfTheBubbleAndHoldsVpChunks) {
    for_each_size(6, [](const ScheduleOptions& options) {
        const int p = options.ranks;
        const int m = options.microbatches;
        const int v = options.rule.chunks;
        if (m % p != 0) return;
        const Schedule schedule = transformer_passes_of("interleaved-zb", options);
        ASSERT_EQ(time_passes(schedule, pass_costs({})).makespan, 3 * m * v + p - 1);
        ASSERT_THAT(peak_chunks(schedule), ::testing::Each(std::min(v * p, m * v)));
    });
}

TEST(LoopedBfs, HasTheBubbleOfInterleavedAndHoldsEverything) {
    for (const UnitCosts& costs : kCosts) {
        for_each_size(6, [&](const ScheduleOptions& options) {
            const int p = options.ranks;
            const int m = options.microbatches;
            const int v = options.rule.chunks;
            const Schedule schedule = transformer_passes_of("looped-bfs", options);
            ASSERT_THAT(peak_chunks(schedule), ::testing::Each(m * v));
            if (m % p != 0) return;
            ASSERT_EQ(time_passes(schedule, pass_costs(costs)).makespan,
                      (m * v + p - 1) * (costs.f + costs.i + costs.w));
        });
    }
}

TEST(GroupInterleaved, IsValidForEveryGroupSizeAndCost) {
    for (const UnitCosts& costs : {UnitCosts{1, 1, 1}, UnitCosts{1, 9, 1}, UnitCosts{9, 1, 1},
                                   UnitCosts{1, 1, 9}, UnitCosts{0, 0, 0}}) {
        for_each_size(6, [&](ScheduleOptions options) {
            options.costs = pass_costs(costs);
            for (int group = 1; group <= options.ranks; ++group) {
                options.rule.group_size = group;
                const Schedule schedule = transformer_passes_of("group-interleaved", options);
                const auto violation = find_violation(schedule);
                ASSERT_FALSE(violation.has_value()) << "g=" << group << violation->message();
                if (options.ranks <= 3) {
                    ASSERT_EQ(brute_force_fault(schedule), "");
                }
            }
        });
    }
}

TEST(GroupInterleaved, TradesBubbleForMemoryByTheGroup) {
    for (int p = 2; p <= 8; ++p) {
        for (int v = 2; v <= 4; ++v) {
            for (int g = (p + 1) / 2; g <= p; ++g) {
                const int m = 3 * g;
                const Schedule schedule = transformer_passes_of(
                    "group-interleaved",
                    {.ranks = p, .microbatches = m, .rule = {.chunks = v, .group_size = g}});
                EXPECT_EQ(time_passes(schedule, pass_costs({})).makespan,
                          3 * m * v + 2 * (p - 1) + (v - 1) * (p - g));
                const std::vector<int> peaks = peak_chunks(schedule);
                for (int r = 0; r < p; ++r) {
                    EXPECT_EQ(peaks[static_cast<size_t>(r)], p + (v - 1) * g - r);
                }
            }
        }
    }
}

TEST(GroupInterleaved, RefusesGroupsLargerThanThePipeline) {
    try {
        (void)transformer_passes_of("group-interleaved",
                                    {.ranks = 4, .microbatches = 8, .rule = {.group_size = 5}});
        FAIL() << "accepted";
    } catch (const UsageError& error) {
        EXPECT_STREQ(error.what(),
                     "RuleOptions::group_size 5: must be at most 4 for group-interleaved, one "
                     "microbatch per rank");
    }
}

}  // namespace
}  // namespace vocabpipe::testing
