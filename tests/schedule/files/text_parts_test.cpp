// SPDX-License-Identifier: Apache-2.0
// Numbers, lines and parts of texts, as all files and flags are read.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/support/html_text.hpp"
#include "src/support/joined.hpp"
#include "src/support/next_line.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/split_text.hpp"
#include "src/support/trimmed_text.hpp"

namespace vocabpipe {
namespace {

using Parts = std::vector<std::string_view>;

TEST(ParseNumber, TakesAllOfATextWithinTheRangeOfItsType) {
    EXPECT_EQ(parse_number<int8_t>("127"), 127);
    EXPECT_EQ(parse_number<int8_t>("-128"), -128);
    EXPECT_EQ(parse_number<int64_t>("9223372036854775807"), std::numeric_limits<int64_t>::max());
    EXPECT_EQ(parse_number<uint64_t>("18446744073709551615"), std::numeric_limits<uint64_t>::max());
    EXPECT_EQ(parse_number<int>("007"), 7);
    EXPECT_EQ(parse_number<double>("-2.5e-3"), -0.0025);
    EXPECT_EQ(parse_number<double>("1e308"), 1e308);
    for (const char* text : {"", " 1", "1 ", "+1", "1.0", "0x1", "128", "-129", "-", "1,"}) {
        EXPECT_EQ(parse_number<int8_t>(text), std::nullopt) << text;
    }
    EXPECT_EQ(parse_number<uint64_t>("-1"), std::nullopt);
    EXPECT_EQ(parse_number<uint64_t>("18446744073709551616"), std::nullopt);
    for (const char* text : {"", "inf", "-inf", "nan", "1e309", "1.5 ", "0x1p3", "."}) {
        EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
    }
}

TEST(ParseFlagNumber, TakesASignButNoOctalNumber) {
    EXPECT_EQ(parse_flag_number<int>("+12"), 12);
    EXPECT_EQ(parse_flag_number<int>("-12"), -12);
    for (const char* zero : {"0", "+0", "-0"}) EXPECT_EQ(parse_flag_number<int>(zero), 0) << zero;
    for (const char* text :
         {"010", "-010", "+010", "00", "-00", "++1", "+-1", "-+1", "--1", "+", "-", ""}) {
        EXPECT_EQ(parse_flag_number<int>(text), std::nullopt) << text;
    }
    EXPECT_EQ(parse_flag_number<double>("+1.5"), 1.5);
    EXPECT_EQ(parse_flag_number<double>("00.5"), 0.5);
    EXPECT_EQ(parse_flag_number<double>("-0.25"), -0.25);
}

TEST(SplitText, HasOnePartMoreThanThereAreSeparators) {
    EXPECT_EQ(split_text(""), Parts{""});
    EXPECT_EQ(split_text("a"), Parts{"a"});
    EXPECT_EQ(split_text(","), (Parts{"", ""}));
    EXPECT_EQ(split_text("a,,bc,"), (Parts{"a", "", "bc", ""}));
    EXPECT_EQ(split_text("a,b:c", ':'), (Parts{"a,b", "c"}));
}

TEST(TrimmedText, HasNoBlanksAroundItAndAllWithin) {
    EXPECT_EQ(trimmed(" \t a b\r"), "a b");
    EXPECT_EQ(trimmed("a"), "a");
    EXPECT_EQ(trimmed(" \t\r"), "");
    EXPECT_EQ(trimmed(""), "");
    EXPECT_EQ(trimmed("\n a \n"), "\n a \n");
    EXPECT_EQ(trimmed("\"a \"", "\""), "a ");
}

TEST(NextLine, EndsWithEitherEndOrTheText) {
    const auto lines = [](std::string_view text) {
        Parts all;
        for (size_t at = 0; at < text.size();) all.push_back(next_line(text, at));
        return all;
    };
    EXPECT_EQ(lines(""), Parts{});
    EXPECT_EQ(lines("a"), Parts{"a"});
    EXPECT_EQ(lines("a\n"), Parts{"a"});
    EXPECT_EQ(lines("\n"), Parts{""});
    EXPECT_EQ(lines("a\r\n\r\nb\rc\r"), (Parts{"a", "", "b\rc"}));
}

TEST(Joined, HasTheTextOfEveryElementAndSeparatorsBetween) {
    EXPECT_EQ(joined(std::vector<int>{}), "");
    EXPECT_EQ(joined(std::vector{3}), "3");
    EXPECT_EQ(joined(std::vector{3, -1, 0}), "3, -1, 0");
    EXPECT_EQ(joined(Parts{"a", "", "b"}, "/"), "a//b");
    EXPECT_EQ(joined(Parts{"a", "bcd"}, " ", &std::string_view::size), "1 3");
    const std::array<int, 2> numbers{1, 2};
    EXPECT_EQ(joined(numbers, "-", [](int n) { return "n" + std::to_string(n); }), "n1-n2");
}

TEST(HtmlText, EscapesWhatBeginsTagsAndEntities) {
    EXPECT_EQ(html_text("a<b>&amp;\"'"), "a&lt;b>&amp;amp;\"'");
    EXPECT_EQ(html_text(""), "");
    EXPECT_EQ(script_text("[\"</script><!--\", 1]"), "[\"\\u003c/script>\\u003c!--\", 1]");
    EXPECT_EQ(script_text("{}"), "{}");
}

}  // namespace
}  // namespace vocabpipe
