// SPDX-License-Identifier: Apache-2.0
#include "src/support/text_layout.hpp"

#include <gtest/gtest.h>

#include <string>

namespace vocabpipe {
namespace {

TEST(WrapText, BreaksAtSpacesAndIndentsWhatFollows) {
    EXPECT_EQ(wrap_text("one two three four five six", 4, 0, 24),
              "one two three four five\n    six");
    EXPECT_EQ(wrap_text("short"), "short");
    EXPECT_EQ(wrap_text(""), "");
    EXPECT_EQ(wrap_text(std::string(100, 'x')), std::string(100, 'x')) << "a word stays whole";
    EXPECT_EQ(wrap_text("a\n  b\n"), "a\n  b\n") << "line breaks and what begins a line stay";
    EXPECT_EQ(wrap_text("key value", 0, 20, 24), "key\nvalue") << "20 columns were taken";
}

TEST(WrapText, FillsALineToItsLastColumn) {
    const std::string line = std::string(39, 'a') + " " + std::string(40, 'b');
    ASSERT_EQ(line.size(), kTextWidth);
    EXPECT_EQ(wrap_text(line), line);
    EXPECT_EQ(wrap_text(line + "c"), std::string(39, 'a') + "\n" + std::string(40, 'b') + "c");
}

TEST(WrapText, LeavesAWordAtTheBeginningOfALineThatItIsTooLongFor) {
    const std::string word(90, 'w');
    EXPECT_EQ(wrap_text("a\n" + word), "a\n" + word);
    EXPECT_EQ(wrap_text(word), word);
    EXPECT_EQ(wrap_text("a " + word), "a\n" + word);
    EXPECT_EQ(wrap_text("a   "), "a") << "spaces at the end";
    EXPECT_EQ(wrap_text("a  \nb"), "a\nb") << "spaces at the end of a line";
}

TEST(Counted, KnowsOneFromMany) {
    EXPECT_EQ(counted(1, "document"), "1 document");
    EXPECT_EQ(counted(0, "document"), "0 documents");
    EXPECT_EQ(counted(2, "pass", "passes"), "2 passes");
    EXPECT_EQ(counted(1, "pass", "passes"), "1 pass");
}

TEST(TextTable, AlignsColumnsAndWrapsALastOneThatIsAlignedLeft) {
    TextTable table;
    table.row({"name", "n", "what"}, {true, false, true});
    std::string words;
    for (int i = 0; i < 16; ++i) words += i == 0 ? "word" : " word";
    table.row({"a", "12", words});
    EXPECT_EQ(table.text(),
              "name   n  what\n"
              "a     12  word word word word word word word word word word word word word word\n"
              "          word word\n");
}

}  // namespace
}  // namespace vocabpipe
