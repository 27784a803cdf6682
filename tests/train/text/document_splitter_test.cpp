// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/document_splitter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using Documents = std::vector<std::string>;

/// The documents of several files, fed in blocks of `block` bytes.
Documents split(DocumentSeparator separator, const std::vector<std::string>& files, size_t block) {
    Documents documents;
    std::string current;
    DocumentSplitter splitter(separator, {.piece = [&](std::string_view text) { current += text; },
                                          .end =
                                              [&] {
                                                  documents.push_back(current);
                                                  current.clear();
                                              }});
    for (const std::string& file : files) {
        for (size_t at = 0; at < file.size(); at += block) {
            splitter.feed(std::string_view(file).substr(at, block));
        }
        splitter.end_file();
    }
    EXPECT_EQ(current, "");
    return documents;
}

TEST(DocumentSplitter, CutsByItsSeparatorWhateverTheBlocks) {
    const auto file = DocumentSeparator::file;
    const auto blank = DocumentSeparator::blank_lines;
    const auto line = DocumentSeparator::line;
    const std::vector<std::tuple<DocumentSeparator, std::vector<std::string>, Documents>> table{
        {file, {"one\n\ntwo\n", "", "three"}, {"one\n\ntwo\n", "three"}},
        {file, {"\n\n"}, {"\n\n"}},
        {file, {" \r\n x"}, {" \r\n x"}},
        {blank, {"a\nb\n\nc\n", "d"}, {"a\nb", "c", "d"}},
        {blank, {"\n\n a\n \t\n\n\nb\n\n\n"}, {" a", "b"}},
        {blank, {"a\r\nb\r\n\r\nc\r\n"}, {"a\nb", "c"}},
        {blank, {"", "\n\n", "   "}, {}},
        {line, {"a\n\nb c\r\n\r\nd", "e\n"}, {"a", "b c", "d", "e"}},
        {line, {"\n"}, {}},
    };
    for (const auto& [separator, files, expected] : table) {
        for (const size_t block : {size_t{1}, size_t{2}, size_t{3}, size_t{1000}}) {
            EXPECT_EQ(split(separator, files, block), expected) << "block " << block;
        }
    }
}

/// The documents of files, from whole lines.
Documents documents_of_lines(DocumentSeparator separator, const std::vector<std::string>& files) {
    Documents documents;
    for (const std::string& file : files) {
        if (separator == DocumentSeparator::file) {
            if (!file.empty()) documents.push_back(file);
            continue;
        }
        bool open = false;
        std::istringstream lines(file);
        for (std::string line; std::getline(lines, line);) {
            if (line.find_first_not_of(" \t\r\v\f") == std::string::npos) {
                open = open && separator != DocumentSeparator::blank_lines;
                continue;
            }
            if (line.back() == '\r') line.pop_back();
            if (open) {
                documents.back() += "\n" + line;
            } else {
                documents.push_back(line);
            }
            open = separator == DocumentSeparator::blank_lines;
        }
    }
    return documents;
}

TEST(DocumentSplitter, CutsRandomFilesAsWholeLinesAreCut) {
    std::mt19937 random(3);
    for (int round = 0; round < 6000; ++round) {
        std::vector<std::string> files(1 + random() % 3);
        for (std::string& file : files) {
            for (size_t i = random() % 20; i > 0; --i) file += "\n\n\n\r \t\v\fab"[random() % 10];
        }
        for (const DocumentSeparator separator :
             {DocumentSeparator::file, DocumentSeparator::blank_lines, DocumentSeparator::line}) {
            ASSERT_EQ(split(separator, files, 1 + random() % 9),
                      documents_of_lines(separator, files))
                << round;
        }
    }
}

TEST(DocumentSplitter, HandsPiecesOnAtTheFirstEndOfLineBehindTheirSize) {
    const std::string line(999, 'x');
    std::string text;
    for (int i = 0; i < 1000; ++i) text += line + "\n";
    std::vector<size_t> pieces;
    DocumentSplitter splitter(
        DocumentSeparator::file,
        {.piece = [&](std::string_view piece) { pieces.push_back(piece.size()); }, .end = [] {}});
    for (size_t at = 0; at < text.size(); at += 512) {
        splitter.feed(std::string_view(text).substr(at, 512));
    }
    splitter.end_file();
    // 2^18 is less than 263 lines; the newline behind a piece begins the next one.
    EXPECT_EQ(pieces, (std::vector<size_t>{262'999, 263'000, 263'000, 211'001}));
}

TEST(DocumentSplitter, CutsALineThatIsLongerThanAMebibyte) {
    constexpr size_t kMost = size_t{1} << 20;
    for (const size_t longer : {size_t{0}, size_t{1}}) {
        std::vector<size_t> pieces;
        DocumentSplitter splitter(
            DocumentSeparator::line,
            {.piece = [&](std::string_view piece) { pieces.push_back(piece.size()); },
             .end = [] {}});
        const std::string line = "ab " + std::string(kMost - 3 + longer, 'x');
        splitter.feed(line);
        splitter.feed("y\n");
        splitter.end_file();
        const std::vector<size_t> whole{line.size() + 1};
        const std::vector<size_t> cut{2, line.size() - 1};
        EXPECT_EQ(pieces, longer == 0 ? whole : cut);
    }
}

TEST(DocumentSplitter, CutsLongTextIntoPiecesWithoutLosingAnything) {
    std::string words;
    while (words.size() < 5'000'000) {
        words += "word" + std::to_string(words.size()) + (words.size() % 7 == 0 ? "\n" : " ");
    }
    std::string spaceless;
    while (spaceless.size() < 3'000'000) {
        spaceless += "\xe2\x82\xac";  // three bytes
    }
    for (const std::string& text :
         {words, spaceless, std::string(3'000'000, ' '), words + spaceless}) {
        std::string joined;
        size_t largest = 0;
        bool whole_characters = true;
        int ends = 0;
        DocumentSplitter splitter(
            DocumentSeparator::file,
            {.piece =
                 [&](std::string_view piece) {
                     joined += piece;
                     largest = std::max(largest, piece.size());
                     whole_characters &= (static_cast<unsigned char>(piece[0]) & 0xc0) != 0x80;
                 },
             .end = [&] { ++ends; }});
        for (size_t at = 0; at < text.size(); at += 1 << 20) {
            splitter.feed(std::string_view(text).substr(at, 1 << 20));
        }
        splitter.end_file();
        EXPECT_TRUE(joined == text);
        EXPECT_LE(largest, 3u << 20);
        EXPECT_TRUE(whole_characters);
        EXPECT_EQ(ends, 1);
    }
}

TEST(DocumentSplitter, TakesTheRestOfALongLineForTextAlsoWhereItIsBlank) {
    const std::string x((size_t{1} << 20) - 1, 'x');
    constexpr size_t kBlock = (1 << 20) + 2;  // with three blanks one byte too long for a line
    const auto blank = DocumentSeparator::blank_lines;
    const auto line = DocumentSeparator::line;
    EXPECT_TRUE(split(blank, {x + "   \nb\n"}, kBlock) == Documents{x + "   \nb"});
    EXPECT_TRUE(split(blank, {x + "  \r\nb\n"}, kBlock) == Documents{x + "  \nb"});
    EXPECT_TRUE(split(line, {x + "   \nb\n"}, kBlock) == (Documents{x + "   ", "b"}));
    EXPECT_TRUE(split(blank, {x + "   \n\nb\n"}, kBlock) == (Documents{x + "   ", "b"}))
        << "the line behind it is blank";
}

TEST(DocumentSplitter, BeginsEveryFileWithALineOfItsOwn) {
    // Not text: nothing is left of the line where it is cut.
    const std::string bytes((size_t{1} << 20) + 1, '\x80');
    EXPECT_TRUE(split(DocumentSeparator::blank_lines, {bytes, "\na"}, bytes.size()) ==
                (Documents{bytes, "a"}));
}

TEST(DocumentSplitter, BreaksBeforeWhiteSpaceElseBetweenCharacters) {
    EXPECT_EQ(last_break("ab cd ef"), 5u);
    EXPECT_EQ(last_break("ab  cd"), 2u);
    EXPECT_EQ(last_break("abcd"), 3u);
    EXPECT_EQ(last_break("ab\xe2\x82\xac"), 2u);
    EXPECT_EQ(last_break("ab\xe2\x82"), 2u);
    EXPECT_EQ(last_break("\x80\x80\x80\x80\x80\x80"), 6u);
    EXPECT_EQ(last_break(" a"), 1u);
    EXPECT_EQ(last_break("a"), 1u);
}

TEST(DocumentSplitter, SeparatorNamesAreParsed) {
    EXPECT_EQ(parse_document_separator("file"), DocumentSeparator::file);
    EXPECT_EQ(parse_document_separator("blank-lines"), DocumentSeparator::blank_lines);
    EXPECT_EQ(parse_document_separator("line"), DocumentSeparator::line);
    EXPECT_THROW((void)parse_document_separator("paragraph"), UsageError);
}

}  // namespace
}  // namespace vocabpipe
