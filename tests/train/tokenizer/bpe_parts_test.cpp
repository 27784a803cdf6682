// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "src/train/tokenizer/bpe/base64.hpp"
#include "src/train/tokenizer/bpe/merges.hpp"
#include "src/train/tokenizer/bpe/pattern.hpp"
#include "src/train/tokenizer/bpe/pattern_syntax.hpp"
#include "src/train/tokenizer/bpe/unicode_form.hpp"
#include "src/train/tokenizer/bpe/utf8.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The definition: the leftmost of the pairs with the lowest rank, until there is none.
std::vector<int32_t> merged_by_definition(const Merges& merges, std::vector<int32_t> ids) {
    for (;;) {
        const Merges::Merge* best = nullptr;
        size_t at = 0;
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            const Merges::Merge* const one = merges.find(ids[i], ids[i + 1]);
            if (one == nullptr || (best != nullptr && one->rank >= best->rank)) continue;
            best = one;
            at = i;
        }
        if (best == nullptr) return ids;
        ids[at] = best->id;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

/// Tokens are strings of two letters, so that a merge makes what its two tokens are together.
TEST(Merger, MergesAsDefinedWhateverTheLength) {
    std::mt19937 random(1);
    Merger merger;
    for (int round = 0; round < 300; ++round) {
        std::vector<std::string> tokens{"a", "b"};
        Merges merges(60);
        for (uint32_t rank = 0; rank < 60; ++rank) {
            const auto left = static_cast<int32_t>(random() % tokens.size());
            const auto right = static_cast<int32_t>(random() % tokens.size());
            if (merges.find(left, right) != nullptr) continue;
            const std::string both =
                tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
            const auto known = std::ranges::find(tokens, both);
            merges.add(left, right,
                       {.rank = rank, .id = static_cast<int32_t>(known - tokens.begin())});
            if (known == tokens.end()) tokens.push_back(both);
        }
        std::vector<int32_t> ids(1 + random() % (round % 2 == 0 ? 40 : 400));
        std::vector<Symbol> symbols;
        for (int32_t& id : ids) {
            id = static_cast<int32_t>(random() % 2);
            symbols.push_back({.id = id, .bytes = 1});
        }
        merger.run(merges, symbols);
        std::vector<int32_t> got;
        uint32_t bytes = 0;
        for (const Symbol& symbol : symbols) {
            got.push_back(symbol.id);
            bytes += symbol.bytes;
            EXPECT_EQ(tokens[static_cast<size_t>(symbol.id)].size(), symbol.bytes);
        }
        EXPECT_EQ(got, merged_by_definition(merges, ids)) << round;
        EXPECT_EQ(bytes, ids.size());
    }
}

/// The parts of a text that a pattern matches.
std::vector<std::string> matches(std::string_view pattern, const std::string& text) {
    const Pattern regex = Pattern::regex(pattern);
    Pattern::Memory memory = regex.make_memory();
    Matches found(regex, text, memory);
    std::vector<std::string> parts;
    while (const auto place = found.next()) {
        parts.push_back(text.substr(place->begin, place->end - place->begin));
    }
    return parts;
}

TEST(Pattern, MeansWhatOnigurumaMeans) {
    EXPECT_THAT(matches("\\s+", "a\u180Eb\u0085 \u3000c"), ElementsAre("\u0085 \u3000"));
    EXPECT_THAT(matches("[^\\s]+", "\u180E \u00A0x"), ElementsAre("\u180E", "x"));
    EXPECT_THAT(matches("\\w+", "a\u0301\u203F9 \u00B2"), ElementsAre("a\u0301\u203F9"));
    EXPECT_THAT(matches("\\d", "1\u0663\u00B2"), ElementsAre("1", "\u0663"));
    EXPECT_THAT(matches("(?i:'s)", "'s'S'\u017F's"), ElementsAre("'s", "'S", "'\u017F", "'s"));
    EXPECT_THAT(matches("x$", "x\nx y"), ElementsAre("x"));
    EXPECT_THAT(matches("^.", "ab\ncd"), ElementsAre("a", "c"));
    EXPECT_THAT(matches("a{,2}b", "aab"), ElementsAre("aab"));
    EXPECT_THAT(matches("a{x}", "a{x}"), ElementsAre("a{x}"));
    EXPECT_THAT(matches("\\p{^L}", "a1"), ElementsAre("1"));
    EXPECT_THAT(matches("[\\u4E00-\\u9FFF\\x{3040}-\\x{309F}]+", "\u4E2Da\u3042"),
                ElementsAre("\u4E2D", "\u3042"));
    // U+3001 is common to several scripts, and of none.
    EXPECT_THAT(matches("\\p{Han}", "\u4E2D\u3001"), ElementsAre("\u4E2D"));
}

TEST(Pattern, MatchesNothingOnlyWhereNoMatchEnds) {
    EXPECT_THAT(matches("x*", "axxb"), ElementsAre("", "xx", ""));
    EXPECT_THAT(matches("", "\u00E9"), ElementsAre("", ""));
}

TEST(Pattern, RefusesByNameWhatMeansSomethingElse) {
    for (const char* const pattern : {"\\h",
                                      "\\R",
                                      "\\bx",
                                      "\\1",
                                      "(?<n>x)",
                                      "(?m:x)",
                                      "a(?i)b",
                                      "[a[b]]",
                                      "[a&&b]",
                                      "[\\S]",
                                      "[]a]",
                                      "x{2}+",
                                      "x{2,3}+",
                                      "x{2}?",
                                      "\\xe9",
                                      "\\u12",
                                      "\\p{In_Han}x\\pL",
                                      "[a",
                                      "\\",
                                      "(*UTF)",
                                      "\\x{zz}"}) {
        EXPECT_THAT(testing::message_of<UsageError>([&] { (void)Pattern::regex(pattern); }),
                    HasSubstr("supported"))
            << pattern;
    }
    for (const char* const pattern : {"(", "a**", "[b-a]", "\\p{Nonsense}", "(?<=a*)b"}) {
        EXPECT_THAT(testing::message_of<UsageError>([&] { (void)Pattern::regex(pattern); }),
                    HasSubstr("is not a regular expression"))
            << pattern;
    }
}

TEST(Pattern, EndsWithAnErrorWhereItWouldTakeForever) {
    EXPECT_THAT(testing::message_of<Error>(
                    [&] { (void)matches("(?:a+)+b|(?:a?)+c", std::string(300, 'a')); }),
                HasSubstr("cannot be matched"));
}

std::string library_form(UnicodeForm form, const std::string& text) {
    const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
    const bool compose = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
    utf8proc_uint8_t* result = nullptr;
    const auto size = utf8proc_map(
        reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &result,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                       (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                       (compatible ? UTF8PROC_COMPAT : 0)));
    std::string copy(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
    std::free(result);
    return copy;
}

TEST(UnicodeForm, IsThatOfTheWholeText) {
    std::mt19937 random(3);
    const std::vector<std::pair<int32_t, int32_t>> ranges{
        {0x20, 0x7F},     {0xA0, 0x250},      {0x300, 0x36F},    {0x900, 0xDFF},
        {0xF40, 0xFC0},   {0x1100, 0x1200},   {0x1E00, 0x2000},  {0x2100, 0x2200},
        {0x3040, 0x3100}, {0x3131, 0x318F},   {0xAC00, 0xAC40},  {0xF900, 0xFB50},
        {0xFF60, 0xFFE0}, {0x1D15E, 0x1D170}, {0x11100, 0x11150}};
    for (int round = 0; round < 20000; ++round) {
        std::string text;
        const size_t count = random() % 8;
        for (size_t i = 0; i < count; ++i) {
            const auto& [low, high] = ranges[random() % ranges.size()];
            append_character(
                text, low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low)));
        }
        for (const UnicodeForm form :
             {UnicodeForm::nfc, UnicodeForm::nfd, UnicodeForm::nfkc, UnicodeForm::nfkd}) {
            ChangedText memory;
            const TextPart part = in_unicode_form(form, {.text = text}, memory);
            EXPECT_EQ(part.text, library_form(form, text)) << text;
            for (size_t i = 0; i < part.text.size(); ++i) EXPECT_LT(part.origin(i), text.size());
        }
    }
}

TEST(UnicodeForm, BeginsWhereTheChangedCharactersBegin) {
    ChangedText memory;
    const TextPart part =
        in_unicode_form(UnicodeForm::nfc, {.text = "ab e\u0301 z", .first = 10}, memory);
    EXPECT_EQ(part.text, "ab \u00E9 z");
    std::vector<size_t> origins;
    for (size_t i = 0; i < part.text.size(); ++i) origins.push_back(part.origin(i));
    EXPECT_THAT(origins, ElementsAre(10, 11, 12, 13, 13, 16, 17));
}

TEST(Base64, IsReadWithItsPadding) {
    EXPECT_EQ(bytes_of_base64("IQ=="), "!");
    EXPECT_EQ(bytes_of_base64("aGVsbG8="), "hello");
    EXPECT_EQ(bytes_of_base64("//79"), "\xff\xfe\xfd");
    for (const char* const wrong : {"IQ", "I===", "I Q=", "IQ=\n", "a=b="}) {
        EXPECT_EQ(bytes_of_base64(wrong), std::nullopt) << wrong;
    }
}

}  // namespace
}  // namespace vocabpipe
