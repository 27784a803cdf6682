// SPDX-License-Identifier: Apache-2.0
#include "src/imported/nsys_ranges.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::imported {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A table in the form of the report nvtx_pushpop_trace; the figures are made up.
const std::string kRangeTable =
    "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl\r\n"
    "100,200,100,0,100,:forward-compute,7,7,0\r\n"
    "250,400,150,0,150,\"loss, \"\"scaled\"\"\",7,7,0\r\n";

TEST(NsysRanges, AreReadWithTheirNamesAndTimes) {
    ASSERT_TRUE(is_nsys_ranges(kRangeTable));
    EXPECT_FALSE(is_nsys_ranges("Start (ns),Name\n"));
    const RankRanges rank = read_nsys_ranges(kRangeTable, "t.csv");
    ASSERT_EQ(rank.ranges.size(), 2U);
    EXPECT_EQ(rank.ranges[0].name, "forward-compute");
    EXPECT_EQ(rank.ranges[0].begin_ns, 100);
    EXPECT_EQ(rank.ranges[1].name, "loss, \"scaled\"");
    EXPECT_EQ(rank.ranges[1].end_ns, 400);
}

TEST(NsysRanges, NameTheLineThatIsWrong) {
    const auto refused = [](const std::string& text, const std::string& what) {
        EXPECT_THAT([&] { return read_nsys_ranges(text, "t.csv"); },
                    ThrowsMessage<InputFileError>(HasSubstr(what)))
            << text;
    };
    refused("Start (ns),Name\n", "t.csv:1: has no column \"End (ns)\"");
    refused("Start (ns),End (ns),Name\n5,3,a\n", "t.csv:2: has no name, or no begin and end");
    refused("Start (ns),End (ns),Name\n1,2,a\n5,8\n", "t.csv:3: has no name");
}

}  // namespace
}  // namespace vocabpipe::imported
