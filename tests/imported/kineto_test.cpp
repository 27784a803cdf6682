// SPDX-License-Identifier: Apache-2.0
#include "src/imported/kineto.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::imported {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

std::string trace(const std::string& events, const std::string& more = "") {
    return "{" + more + R"("traceEvents": [)" + events + "]}";
}

TEST(Kineto, SaysRankHostAndRangesOfATrace) {
    const RankRanges rank = read_kineto(
        trace(R"({"ph": "M", "name": "process_name"},)"
              R"({"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "ts": 1.5, "dur": 2.25},)"
              R"({"ph": "X", "cat": "cpu_op", "name": "c10d::send", "ts": 4, "dur": 1},)"
              R"({"ph": "X", "cat": "kernel", "name": "PP:0F0", "ts": 4, "dur": 1})",
              R"("distributedInfo": {"rank": 3}, "host_name": "alpha", )"
              R"("baseTimeNanoseconds": 1000000, )"),
        "t.json");
    EXPECT_EQ(rank.rank, 3);
    EXPECT_EQ(rank.host, "alpha");
    ASSERT_EQ(rank.ranges.size(), 2U);
    EXPECT_EQ(rank.ranges[0].name, "PP:0F0");
    EXPECT_EQ(rank.ranges[0].begin_ns, 1'001'500);
    EXPECT_EQ(rank.ranges[0].end_ns, 1'003'750);
}

TEST(Kineto, TakesWhatTheGpuDidWhereThereIsOne) {
    const RankRanges rank = read_kineto(
        trace(R"({"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "ts": 1, "dur": 2},)"
              R"({"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0F0", "ts": 7, "dur": 5})"),
        "t.json");
    ASSERT_EQ(rank.ranges.size(), 1U);
    EXPECT_EQ(rank.ranges[0].begin_ns, 7000);
    EXPECT_EQ(rank.rank, -1);
}

TEST(Kineto, NamesThePlaceOfWhatItCannotRead) {
    const auto refused = [](const std::string& text, const std::string& what) {
        EXPECT_THAT([&] { static_cast<void>(read_kineto(text, "t.json")); },
                    ThrowsMessage<InputFileError>(
                        AllOf(HasSubstr("t.json: "), HasSubstr(what), Not(HasSubstr("\n")),
                              HasSubstr("use a file written by torch.profiler"))))
            << text;
    };
    refused("{", "at line 1, column 2");
    refused("[]", "has no \"traceEvents\"");
    refused(trace(R"({"ph": "M"}, {"ph": "X", "cat": "user_annotation", "name": "PP:0F0"})"),
            "event 2 has no time and duration");
    refused(trace(R"({"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e300, "dur": 1})"),
            "event 1 has no time and duration, or one out of range");
    refused(trace(R"({"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": -1})"),
            "out of range");
    refused(trace("", R"("distributedInfo": {"rank": 70000}, )"), "rank 70000 is out of range");
    refused(trace("", R"("baseTimeNanoseconds": -5, )"), "\"baseTimeNanoseconds\" is out of range");
}

}  // namespace
}  // namespace vocabpipe::imported
