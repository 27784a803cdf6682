// SPDX-License-Identifier: Apache-2.0
#include "src/imported/measured_run.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::imported {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const RangeRules kNamed =
    make_range_rules("named", {{"pass", {"{stage}{op}{microbatch}"}},
                               {"receive", {"{stage}RECV_{op}{microbatch}"}},
                               {"send", {"{stage}SEND_{op}{microbatch}", "send"}},
                               {"arrival", {"recv"}}});

/// Two ranks of a stage each that run F and B of one microbatch: 10 ns of F and 20 of B, 3 ns of
/// messages. Rank 1's F waits from 2 to 13 in its range, rank 0's B from 10 to 46.
std::vector<RankRanges> two_ranks(int64_t ahead_ns = 0) {
    std::vector<RankRanges> ranks{{.file = "a",
                                   .ranges = {{"0F0", 0, 10},
                                              {"0SEND_F0", 10, 11},
                                              {"0RECV_B0", 11, 12},
                                              {"recv", 11, 46},
                                              {"0B0", 12, 66}}},
                                  {.file = "b",
                                   .ranges = {{"1RECV_F0", 1, 2},
                                              {"recv", 1, 13},
                                              {"1F0", 2, 23},
                                              {"1B0", 23, 43},
                                              {"1SEND_B0", 43, 44}}}};
    for (NamedRange& range : ranks[1].ranges) {
        range.begin_ns += ahead_ns;
        range.end_ns += ahead_ns;
    }
    return ranks;
}

TEST(FindPasses, CountsTheWaitForItsInputToNoPass) {
    const MeasuredRun run = find_passes(two_ranks(), kNamed);
    ASSERT_EQ(run.steps.size(), 1U);
    EXPECT_EQ(run.stages, 2);
    EXPECT_EQ(run.microbatches, 1);
    const MeasuredStep& step = run.steps[0];
    EXPECT_EQ(step[1][0].begin_ns, 13);
    EXPECT_EQ(step[1][0].end_ns, 23);
    EXPECT_EQ(step[0][1].begin_ns, 46);
    EXPECT_EQ(MeasuredRun::makespan_ns(step), 66);
    EXPECT_EQ(pass_times_csv(run), "rank,op,stage,ns\n0,F,0,10\n0,B,0,20\n1,F,1,10\n1,B,1,20\n");
}

TEST(FindPasses, RecordsMessagesBetweenTheRanks) {
    const MeasuredRun run = find_passes(two_ranks(), kNamed);
    const RecordedRun recorded = record_step(run, 0);
    const TimelineSummary summary = summarize(recorded);
    EXPECT_EQ(summary.makespan_ns, 66);
    EXPECT_EQ(summary.ranks[0].busy_ns, 30);
    EXPECT_EQ(summary.ranks[1].busy_ns, 30);
    int64_t forward = 0, backward = 0;
    for (const RecordedRun::Slice& slice : recorded.slices) {
        if (slice.lane == Lane::forward && slice.rank == 1) forward = slice.end_ns;
        if (slice.lane == Lane::backward && slice.rank == 1) backward = slice.begin_ns;
    }
    EXPECT_EQ(forward, 13);
    EXPECT_EQ(backward, 43);
}

TEST(FindPasses, EndAPassWhereItsResultIsSentWithinItsRange) {
    const RangeRules gpipe = make_range_rules("gpipe", {{"F", {"F {microbatch}"}},
                                                        {"B", {"B {microbatch}"}},
                                                        {"arrival", {"recv"}},
                                                        {"send", {"send"}}});
    // The stage is the rank's.
    const MeasuredRun run = find_passes(
        {{.file = "a",
          .ranges = {{"F 0", 0, 12}, {"send", 10, 11}, {"B 0", 13, 66}, {"recv", 14, 46}}},
         {.file = "b",
          .ranges = {{"F 0", 1, 23}, {"recv", 2, 13}, {"B 0", 23, 45}, {"send", 43, 44}}}},
        gpipe);
    EXPECT_EQ(pass_times_csv(run), "rank,op,stage,ns\n0,F,0,10\n0,B,0,20\n1,F,1,10\n1,B,1,20\n");
}

TEST(FindPasses, CountMicrobatchesThatNamesDoNotSay) {
    const RangeRules counted = make_range_rules("counted", {{"F", {"fwd"}}, {"B", {"bwd"}}});
    std::vector<NamedRange> ranges;
    for (int64_t step = 0; step < 3; ++step) {
        for (int64_t i = 0; i < 4; ++i) {
            const int64_t at = 100 * step + 10 * i;
            ranges.push_back({i % 2 == 0 ? "fwd" : "bwd", at, at + 5});
        }
    }
    const MeasuredRun run =
        find_passes({{.file = "a", .ranges = ranges}}, counted, {.microbatches = 2});
    EXPECT_EQ(run.steps.size(), 3U);
    EXPECT_EQ(run.microbatches, 2);
    EXPECT_EQ(to_string(run.steps[2][0][3].pass), "0B1");
    EXPECT_THAT([&] { return find_passes({{.file = "a", .ranges = ranges}}, counted); },
                ThrowsMessage<UsageError>(HasSubstr("--microbatches: is required")));
}

TEST(FindPasses, LeaveOutStepsThatTheRecordingCut) {
    std::vector<RankRanges> ranks{
        {.file = "a",
         .ranges = {
             {"0F0", 0, 1}, {"0B0", 1, 2}, {"0F0", 10, 11}, {"0B0", 11, 12}, {"0F0", 20, 21}}}};
    const MeasuredRun run = find_passes(ranks, kNamed);
    EXPECT_EQ(run.steps.size(), 2U);
    EXPECT_EQ(run.left_out, 1);
}

TEST(FindPasses, NameTheFileThatIsWrong) {
    EXPECT_THAT(
        [] {
            return find_passes({{.file = "a", .ranges = {{"aten::mm", 0, 1}}}}, kNamed);
        },
        ThrowsMessage<InputFileError>(AllOf(HasSubstr("a: has no pass among ranges such as "
                                                      "\"aten::mm\" by the rules named"),
                                            HasSubstr("use --rules FILE"))));
    EXPECT_THAT(
        [] {
            return find_passes({{.file = "a", .ranges = {{"1F0", 0, 1}, {"1B0", 1, 2}}}}, kNamed);
        },
        ThrowsMessage<InputFileError>(AllOf(HasSubstr("a: its passes are no step of a pipeline"),
                                            HasSubstr("give the traces of all ranks"))));
    EXPECT_THAT(
        [] {
            return find_passes({{.file = "a", .ranges = {{"0F65536", 0, 1}}}}, kNamed);
        },
        ThrowsMessage<InputFileError>(HasSubstr("a: range \"0F65536\" is of stage 0 and "
                                                "microbatch 65536, but at most")));
}

}  // namespace
}  // namespace vocabpipe::imported
