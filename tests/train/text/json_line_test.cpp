// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/json_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/train/text/line_splitter.hpp"
#include "tests/train/data/expect_error.hpp"

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::SizeIs;

std::string reason(const std::string& line) {
    return message_of<BadLine>([&] { (void)text_of_json_line(line, "text"); });
}

TEST(JsonLine, GivesTheLastStringOfTheOutermostKey) {
    EXPECT_EQ(text_of_json_line(R"({"text": "a\u00e9\n\ud83d\ude00", "n": 1})", "text"),
              "a\u00e9\n\U0001F600");
    EXPECT_EQ(
        text_of_json_line(R"({"m": {"text": "no"}, "l": [{"text": "no"}], "text": "yes"})", "text"),
        "yes");
    EXPECT_EQ(text_of_json_line(R"({"text": "a", "text": "b"} )", "text"), "b");
    EXPECT_EQ(text_of_json_line(R"({"text": 1, "text": "b"})", "text"), "b");
    EXPECT_EQ(text_of_json_line(R"({"a\"b": "quoted"})", "a\"b"), "quoted");
}

TEST(JsonLine, SaysWhyALineHasNoDocument) {
    EXPECT_EQ(
        reason(R"({"id": 1, "body": "x", "title": "y"})"),
        "has no \"text\"; strings are under \"body\", \"title\"; choose one with --json-keys");
    EXPECT_EQ(reason(R"({"text": 1})"), "\"text\" is no string but number; no key has a string");
    EXPECT_EQ(reason(R"({"text": {"text": "a"}})"),
              "\"text\" is no string but object; no key has a string");
    EXPECT_EQ(reason(R"({"text": "a", "text": null})"),
              "\"text\" is no string but null; strings are under \"text\"");
    EXPECT_EQ(reason(R"(["text"])"), "is no JSON object but array");
    EXPECT_EQ(reason(R"("text")"), "is no JSON object but string");
    EXPECT_EQ(reason("17"), "is no JSON object but number");
    for (const char* broken :
         {R"({"text": "a)", R"({"text": "a"} x)", R"({'text': 'a'})", R"({"text": "a",})",
          "{\"text\": \"caf\xe9\"}", R"({"text": "\ud800"})", R"({"text": NaN})", "{", "text"}) {
        EXPECT_THAT(reason(broken), HasSubstr("is no JSON: column ")) << broken;
    }
}

TEST(JsonLine, KeepsReasonsShort) {
    const std::string huge(1'000'000, 'k');
    EXPECT_LT(reason("{\"" + huge + "\": \"\"}").size(), 400U);
    EXPECT_LT(reason("{\"text\": \"" + huge).size(), 400U);
    std::string many = "{";
    for (int i = 0; i < 100; ++i) many += "\"key" + std::to_string(i) + "\": \"\", ";
    EXPECT_THAT(reason(many + "\"n\": 1}"), HasSubstr("\"key9\", ...; choose one"));
}

TEST(JsonLine, NamesTheFirstTenKeysUpToTheirHundredAndSixtiethByte) {
    const auto strings = [](const std::vector<std::string>& keys) {
        std::string line = R"({"text": 1)";
        for (const std::string& key : keys) line += ", \"" + key + R"(": "", "n)" + key + "\": 2";
        return reason(line + "}");
    };
    const auto names = [](const std::string& keys) {
        return "\"text\" is no string but number; strings are under " + keys;
    };
    const std::string k(160, 'k');
    EXPECT_EQ(strings({k}), names("\"" + k + "\""));
    EXPECT_EQ(strings({k + "k"}), names("\"" + k + "...\""));
    // Whole characters: the euro sign has three bytes, of which one, two or three are within.
    for (size_t within = 1; within <= 3; ++within) {
        const std::string begin(160 - within, 'k');
        const std::string kept = within == 3 ? begin + "\u20AC" : begin;
        EXPECT_EQ(strings({begin + "\u20ACxx"}), names("\"" + kept + "...\"")) << within;
    }
    std::vector<std::string> keys;
    std::string known;
    for (char key = 'a'; key < 'k'; ++key) {
        keys.emplace_back(1, key);
        known += std::string(known.empty() ? "\"" : ", \"") + key + "\"";
    }
    EXPECT_EQ(strings(keys), names(known));
    keys.emplace_back("k");
    EXPECT_EQ(strings(keys), names(known + ", ..."));
    // Strings of what is within are no keys to choose.
    EXPECT_EQ(reason(R"({"a": ["x"], "b": {"c": "d"}, "text": true, "e": "f"})"),
              "\"text\" is no string but boolean; strings are under \"e\"");
    EXPECT_EQ(reason(R"({"a": {"text": "x"}, "text": [], "b": [["y"]]})"),
              "\"text\" is no string but array; no key has a string");
    EXPECT_EQ(reason(R"([{"text": "x"}])"), "is no JSON object but array");
    EXPECT_EQ(reason(R"([{}, "x", 1])"), "is no JSON object but array");
    EXPECT_EQ(reason("-1.5"), "is no JSON object but number");
    EXPECT_EQ(reason("null"), "is no JSON object but null");
    EXPECT_EQ(reason("false"), "is no JSON object but boolean");
}

TEST(JsonLine, MayBeNestedToAnyDepth) {
    const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
    EXPECT_EQ(text_of_json_line("{\"meta\": " + deep + ", \"text\": \"a\"}", "text"), "a");
}

TEST(LineSplitter, CutsAtNewlinesWhereverBlocksEnd) {
    const std::string file = "\xef\xbb\xbfone\n\nthree\nfour";
    for (size_t block = 1; block <= file.size(); ++block) {
        std::vector<std::string> lines;
        LineSplitter splitter([&](const LineSplitter::Line& line) {
            lines.push_back(std::to_string(line.number) + " " + std::string(line.text));
        });
        for (int repeat = 0; repeat < 2; ++repeat) {
            for (size_t at = 0; at < file.size(); at += block) {
                splitter.feed(std::string_view(file).substr(at, block));
            }
            splitter.end_file();
            EXPECT_THAT(lines, ElementsAre("1 one", "2 ", "3 three", "4 four"));
            lines.clear();
        }
    }
}

TEST(LineSplitter, DropsWhatIsLongerThanItsLimit) {
    std::vector<LineSplitter::Line> lines;
    LineSplitter splitter([&](const LineSplitter::Line& line) {
        lines.push_back({line.number, line.too_long ? line.text : "", line.too_long});
    });
    const std::string block(size_t{1} << 20, 'x');
    for (size_t i = 0; i < LineSplitter::kMostBytes / block.size(); ++i) splitter.feed(block);
    splitter.feed("\n");  // the limit itself
    for (size_t i = 0; i < LineSplitter::kMostBytes / block.size(); ++i) splitter.feed(block);
    splitter.feed("x\nnext");
    splitter.end_file();
    ASSERT_THAT(lines, SizeIs(3));
    EXPECT_FALSE(lines[0].too_long);
    EXPECT_TRUE(lines[1].too_long);
    EXPECT_EQ(lines[1].text, "");
    EXPECT_FALSE(lines[2].too_long);
    EXPECT_EQ(lines[2].number, 3);
}

}  // namespace
}  // namespace vocabpipe
