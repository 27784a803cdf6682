// SPDX-License-Identifier: Apache-2.0
#include "src/imported/operations.hpp"

#include "src/imported/measured_run.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::imported {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const RangeRules kOperations = make_range_rules(
    "operations", {{"pass", {"{op} stage {stage} microbatch {microbatch}"}},
                   {"arrival", {"receive for {op} stage {stage} microbatch {microbatch}"}},
                   {"send", {"send after {op} stage {stage} microbatch {microbatch}"}}});

/// Rows in the published form, made up: two stages, one microbatch, two steps, replicas 0 and 1.
/// Passes of 0.1 and 0.2 s; messages arrive 0.01 s after they were sent.
const std::string kTable =
    "\"dp_rank\",\"stage\",\"rank\",\"step\",\"optype\",\"start_ts\",\"duration\",\"seq_id\","
    "\"mc\",\"mb_id\",\"gmc\"\r\n"
    "0,0,0,23,forward-compute,0.0,0.1,0,0,0,0\r\n"
    "0,0,0,23,forward-send,0.1,0.01,0,-1,-1,-1\r\n"
    "0,0,0,23,backward-recv,0.11,0.31,0,-1,-1,-1\r\n"
    "0,0,0,23,backward-compute,0.42,0.2,0,0,0,0\r\n"
    "0,1,2,23,forward-recv,0.0,0.11,0,-1,-1,-1\r\n"
    "0,1,2,23,forward-compute,0.11,0.1,0,0,0,1\r\n"
    "0,1,2,23,backward-compute,0.21,0.2,0,0,0,1\r\n"
    "0,1,2,23,backward-send,0.41,0.01,0,-1,-1,-1\r\n"
    "0,1,2,23,gc,0.42,0.0,0,0,0,-1\r\n"
    "1,0,1,23,forward-compute,0.0,9.0,0,0,0,0\r\n"
    "0,0,0,25,forward-compute,0.0,0.1,0,0,0,0\r\n"
    "0,0,0,25,backward-compute,0.42,0.2,0,0,0,0\r\n"
    "0,1,2,25,forward-compute,0.11,0.1,0,0,0,1\r\n"
    "0,1,2,25,backward-compute,0.21,0.2,0,0,0,1\r\n";

TEST(Operations, AreReadAsPassesAndMessagesOfOneReplica) {
    ASSERT_TRUE(is_operations(kTable));
    EXPECT_FALSE(is_operations("rank,op,stage,ns\n0,F,0,optype\n"));
    const MeasuredRun run = find_passes(read_operations(kTable, "t.csv", 0), kOperations);
    EXPECT_EQ(run.steps.size(), 2U);
    EXPECT_EQ(run.stages, 2);
    EXPECT_EQ(MeasuredRun::makespan_ns(run.steps[0]), 620'000'000);
    const MeasuredPass& first = run.steps[0][1][0];
    EXPECT_EQ(first.arrived_ns - first.posted_ns, 110'000'000);
    EXPECT_EQ(run.steps[0][1][1].sent_ns, run.steps[0][1][1].end_ns);
    // Times of the second step count on from the first.
    EXPECT_GT(run.steps[1][0][0].begin_ns, run.steps[0][0][1].end_ns);
}

TEST(Operations, NameTheLineThatIsWrong) {
    const auto refused = [](const std::string& text, const std::string& what) {
        EXPECT_THAT([&] { return read_operations(text, "t.csv", 0); },
                    ThrowsMessage<InputFileError>(HasSubstr(what)))
            << text;
    };
    const std::string head = "dp_rank,stage,step,optype,start_ts,duration,seq_id,mb_id,gmc\n";
    refused("dp_rank,stage,step,optype\n", "t.csv:1: has no column \"start_ts\"");
    refused(head + "0,0\n", "t.csv:2: has 2 cells; expected 9");
    refused(head + "0,-1,3,forward-compute,0,1,0,0,0\n",
            "t.csv:2: stage \"-1\": must be an integer");
    refused(head + "0,0,3,forward-compute,nan,1,0,0,0\n", "t.csv:2: start_ts \"nan\": must be");
    EXPECT_THAT([&] { return read_operations(kTable, "t.csv", 7); },
                ThrowsMessage<UsageError>(HasSubstr("--replica 7: t.csv has no operation of it")));
}

}  // namespace
}  // namespace vocabpipe::imported
