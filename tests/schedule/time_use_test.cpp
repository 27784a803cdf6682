// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/explain/time_use.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vocabpipe/explain.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Rank 0 runs F, receives, runs B; rank 1 waits for a message, runs F and B.
RecordedRun two_ranks() {
    constexpr uint32_t kNone = RecordedRun::kNone;
    RecordedRun run{.title = "two ranks", .ranks = 2, .mesh = {.pipeline = 2}};
    run.names = {"0F", "receive ", "0B", "1F", "1B"};
    run.slices = {
        {.begin_ns = 0, .end_ns = 10, .cpu_ns = 10, .name = 0, .number = 0, .waited_for = kNone},
        {.begin_ns = 60, .end_ns = 80, .cpu_ns = 10, .name = 2, .number = 0, .waited_for = 2},
        {.begin_ns = 50, .end_ns = 55, .name = 1, .order = 7, .lane = Lane::backward},
        {.begin_ns = 15, .end_ns = 25, .cpu_ns = 10, .name = 3, .waited_for = 5, .rank = 1},
        {.begin_ns = 25, .end_ns = 45, .cpu_ns = 10, .name = 4, .waited_for = 3, .rank = 1},
        {.begin_ns = 10, .end_ns = 14, .name = 1, .rank = 1, .lane = Lane::forward}};
    return run;
}

TEST(TimeUse, AddsUpToTheMakespanOnEveryRank) {
    const std::vector<RankTimeUse> ranks = time_use(two_ranks());
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_EQ(ranks[0].busy_ns, 30);
    EXPECT_EQ(ranks[0].cpu_ns, 20);
    ASSERT_EQ(ranks[0].passes.size(), 2U);
    EXPECT_EQ(ranks[0].passes[0].name, "B");
    EXPECT_EQ(ranks[0].passes[0].ns, 20);
    ASSERT_EQ(ranks[0].waits.size(), 1U);
    EXPECT_EQ(ranks[0].waits[0].name, "backward messages");
    EXPECT_EQ(ranks[0].waits[0].ns, 50);
    ASSERT_EQ(ranks[1].waits.size(), 2U);
    EXPECT_EQ(ranks[1].waits[0].name, "the others' end");
    EXPECT_EQ(ranks[1].waits[0].ns, 35);
    EXPECT_EQ(ranks[1].waits[1].name, "forward messages");
    for (const RankTimeUse& rank : ranks) {
        int64_t sum = 0;
        for (const auto& shares : {rank.passes, rank.waits}) {
            for (const RankTimeUse::Share& share : shares) sum += share.ns;
        }
        EXPECT_EQ(sum, 80);
    }
}

TEST(TimeUse, IsToldInWordsWithTheCoresThatWereShared) {
    const auto time = [](int64_t ns) { return std::to_string(ns) + " ns"; };
    const std::string text = to_text(two_ranks(), time);
    EXPECT_THAT(text, AllOf(HasSubstr("80 ns on 2 ranks, which compute 37.5 % of it\n"),
                            HasSubstr("passes took 1.50 times their CPU time"),
                            HasSubstr("rank 0: B 25.0 %, F 12.5 %; idle: backward messages 62.5 %"),
                            HasSubstr("critical path")));
    EXPECT_THAT(to_text(two_ranks(), 0, 30, time),
                AllOf(HasSubstr("rank 0 is idle before 0B0, from 10 ns to 60 ns"),
                      HasSubstr("after receive  of rank 0")));
    EXPECT_THAT(to_text(two_ranks(), 1, 50, time), HasSubstr("has finished all its passes"));
}

}  // namespace
}  // namespace vocabpipe
