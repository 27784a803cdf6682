// SPDX-License-Identifier: Apache-2.0
#include "src/imported/otlp.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::imported {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A document of one resource, as the file exporter's lines are.
std::string document(int rank, const std::string& spans) {
    return R"({"resourceSpans":[{"resource":{"attributes":[{"key":"rank","value":{"intValue":")" +
           std::to_string(rank) +
           R"("}},{"key":"host.name","value":{"stringValue":"alpha"}}]},)"
           R"("scopeSpans":[{"scope":{},"spans":[)" +
           spans + "]}]}]}";
}

std::string span(const std::string& name, const std::string& begin, const std::string& end) {
    return R"({"name":")" + name + R"(","startTimeUnixNano":)" + begin + R"(,"endTimeUnixNano":)" +
           end + "}";
}

TEST(Otlp, SaysSpansOfEveryRankFromLines) {
    const std::string text =
        document(1, span("a", "\"1790857026000000001\"", "\"1790857026000000009\"")) + "\n\n" +
        document(0, span("b", "5", "6")) + "\n" + document(1, span("c", "7", "7"));
    ASSERT_TRUE(is_otlp(text));
    const std::vector<RankRanges> ranks = read_otlp(text, "t.jsonl");
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_EQ(ranks[0].rank, 1);
    EXPECT_EQ(ranks[0].host, "alpha");
    ASSERT_EQ(ranks[0].ranges.size(), 2U);
    EXPECT_EQ(ranks[0].ranges[0].begin_ns, 1790857026000000001);
    EXPECT_EQ(ranks[0].ranges[1].name, "c");
    EXPECT_EQ(ranks[1].ranges[0].end_ns, 6);
}

TEST(Otlp, NamesTheLineThatIsWrong) {
    const auto refused = [](const std::string& text, const std::string& what) {
        EXPECT_THAT([&] { return read_otlp(text, "t.jsonl"); },
                    ThrowsMessage<InputFileError>(HasSubstr(what)))
            << text;
    };
    refused(document(0, "") + "\n{", "t.jsonl:2: is no JSON");
    refused(document(0, span("a", "9", "5")), "t.jsonl: has a span whose times are 9 and 5");
    refused(document(-1, ""), "t.jsonl: has rank");
    refused(R"({"resourceSpans":[{}]})", "lacks a member");
    refused(R"({"resourceSpans":[]})", "has no spans");
}

}  // namespace
}  // namespace vocabpipe::imported
