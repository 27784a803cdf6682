// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace vocabpipe::tool {
namespace {

std::string repeated(size_t count, const char* part) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += part;
    return text;
}

TEST(OneLine, HasSpacesForControlCharactersAndKeepsAllOthers) {
    EXPECT_EQ(one_line(""), "");
    EXPECT_EQ(one_line("a\tb\nc\x1f\x20\x7e\x7f"), "a b c  ~ ");
    EXPECT_EQ(one_line("\xc2\x80\xc2\x9f\xc2\xa0\xc3\x80"), "  \xc2\xa0\xc3\x80");
    const std::string first_and_last =
        "\x20\x7e\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";
    EXPECT_EQ(one_line(first_and_last), first_and_last);
}

TEST(OneLine, HasAQuestionMarkForEveryByteThatIsNotUtf8) {
    EXPECT_EQ(one_line("\x80\xbf"), "??");
    EXPECT_EQ(one_line("\xc0\x80\xc1\xbf"), "????");
    EXPECT_EQ(one_line("\xf5\x80\x80\x80"), "????");
    EXPECT_EQ(one_line("\xc3("), "?(");
    EXPECT_EQ(one_line("\xe2\x82"), "??") << "ends within a character";
    EXPECT_EQ(one_line("\xe2\x82z"), "??z");
    EXPECT_EQ(one_line("\xf0\x9f\x98\xc3\xa4"), "???\xc3\xa4");
}

TEST(ShortLine, CutsWordsAndKeepsThePunctuationBehindThem) {
    EXPECT_EQ(short_line(" a  b "), "a  b");
    const std::string word = repeated(200, "w");
    EXPECT_EQ(short_line(word), word);
    EXPECT_EQ(short_line("a " + word + "w b"), "a " + word + "... b");
    for (const std::string last : {":", ";", ","}) {
        EXPECT_EQ(short_line(word + last), word + "..." + last);
    }
    EXPECT_EQ(short_line(word + "."), word + "...");
    EXPECT_EQ(short_line(repeated(199, "w") + "\xc3\xa4 b"), repeated(199, "w") + "... b")
        << "no half of a character";
}

TEST(ShortLine, LosesTheMiddleBeyondAThousandBytes) {
    const std::string words = repeated(100, "ninechars ");
    EXPECT_EQ(short_line(words + "!"), words.substr(0, 666) + " ... " + words.substr(668) + "!");
    EXPECT_EQ(short_line(words.substr(0, 999) + "!"), words.substr(0, 999) + "!");
    // Bytes 666 and 683, a third from the end, are second ones of a character.
    const std::string accents =
        repeated(78, "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4 ") + "bc";
    ASSERT_EQ(accents.size(), 1016U);
    EXPECT_EQ(short_line(accents), accents.substr(0, 665) + " ... " + accents.substr(682));
}

TEST(Quoted, EscapesWhatCannotBeShown) {
    EXPECT_EQ(quoted("", 10), "\"\"");
    EXPECT_EQ(quoted("a\n\"\\'", 100), "\"a\\n\\\"\\\\'\"");
    EXPECT_EQ(quoted("\t\x1f \x7e\x7f", 100), "\"\\x09\\x1f ~\\x7f\"");
    EXPECT_EQ(quoted("\xc3\xa4\xff\xc3", 100), "\"\xc3\xa4\\xff\\xc3\"");
}

TEST(Quoted, IsCutBehindTheBytesThatAreAskedFor) {
    EXPECT_EQ(quoted("abc", 3), "\"abc\"");
    EXPECT_EQ(quoted("abcd", 3), "\"abc\"...");
    EXPECT_EQ(quoted("ab\xc3\xa4z", 3), "\"ab\xc3\xa4\"...") << "with a whole character";
    EXPECT_EQ(quoted("a", 0), "\"\"...");
}

TEST(CommandLine, IsOneLineOfItsWords) {
    std::string program = "train_gpt", flag = "--title", value = "a\nb";
    std::array<char*, 3> arguments{program.data(), flag.data(), value.data()};
    EXPECT_EQ(command_line(3, arguments.data()), "train_gpt --title a b");
    EXPECT_EQ(command_line(1, arguments.data()), "train_gpt");
}

}  // namespace
}  // namespace vocabpipe::tool
