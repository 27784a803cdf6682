// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/train/tokenizer/bpe/added_tokens.hpp"
#include "src/train/tokenizer/bpe/base64.hpp"
#include "src/train/tokenizer/bpe/character_kinds.hpp"
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

/// Every character alone, and behind and before others, in every form.
TEST(UnicodeForm, IsThatOfEveryCharacter) {
    for (int32_t code = 1; code < 0x30000; code += code < 0x3400 || code > 0xA000 ? 1 : 97) {
        if (code >= 0xD800 && code < 0xE000) continue;
        std::string text;
        append_character(text, code);
        const utf8proc_property_t* const property = utf8proc_get_property(code);
        if (property->category == UTF8PROC_CATEGORY_CN) continue;
        text = "\u0928\u1100" + text + "\u0301";
        for (const UnicodeForm form :
             {UnicodeForm::nfc, UnicodeForm::nfd, UnicodeForm::nfkc, UnicodeForm::nfkd}) {
            ChangedText memory;
            ASSERT_EQ(in_unicode_form(form, {.text = text}, memory).text, library_form(form, text))
                << code;
        }
    }
}

TEST(CharacterKinds, AreThoseOfOniguruma) {
    const std::set<int32_t> spaces{'\t',   '\n',   '\v',   '\f',   '\r',   ' ',    0x85,
                                   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                   0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                   0x2029, 0x202F, 0x205F, 0x3000};
    for (int32_t code = 0; code < 0x110000; ++code) {
        ASSERT_EQ(is_white_space(code), spaces.contains(code)) << code;
        const std::string kind = utf8proc_category_string(code);
        const bool joiner = code == 0x200C || code == 0x200D;
        const bool circled =
            kind == "So" &&
            ((code > 0x24B5 && code < 0x24EA) || (code > 0x1F12F && code < 0x1F14A) ||
             (code > 0x1F14F && code < 0x1F16A) || (code > 0x1F16F && code < 0x1F18A));
        ASSERT_EQ(is_word_character(code), kind[0] == 'L' || kind[0] == 'M' || kind == "Nd" ||
                                               kind == "Nl" || kind == "Pc" || joiner || circled)
            << code << kind;
    }
}

/// The tokens of a text by a search for each of them at every place.
std::string searched_tokens(const std::vector<std::pair<std::string, AddedToken>>& tokens,
                            const std::string& text) {
    const auto begins_character = [&](size_t at) {
        return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    };
    const auto in_word = [&](size_t at) { return is_word_character(character_code(text, at)); };
    const auto is_space = [&](size_t at) { return is_white_space(character_code(text, at)); };
    std::string found;
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
        const std::pair<std::string, AddedToken>* best = nullptr;
        for (const auto& one : tokens) {
            if (!one.first.empty() && text.compare(from, one.first.size(), one.first) == 0 &&
                (best == nullptr || one.first.size() > best->first.size())) {
                best = &one;
            }
        }
        if (best == nullptr) {
            ++from;
            continue;
        }
        size_t begin = from;
        size_t end = from + best->first.size();
        size_t before = begin;
        while (before > 0 && !begins_character(--before)) {
        }
        const bool touches = (begin > 0 && in_word(before)) || (end < text.size() && in_word(end));
        from = end;
        if (best->second.single_word && touches) continue;
        if (best->second.left_strip) {
            for (size_t at = begin; at > done;) {
                while (!begins_character(--at)) {
                }
                if (at < done || !is_space(at)) break;
                begin = at;
            }
        }
        while (best->second.right_strip && end < text.size() && is_space(end)) {
            do {
                ++end;
            } while (!begins_character(end));
        }
        found += std::to_string(best->second.id) + ":" + std::to_string(begin) + "-" +
                 std::to_string(end) + " ";
        done = end;
    }
    return found;
}

TEST(AddedTokens, AreThoseOfASearchAtEveryPlace) {
    std::mt19937 random(17);
    const std::vector<std::string> parts{"a", "b", " ", "\u3000", "\u00E9", "<", "_", ".", "\n"};
    const auto text_of = [&](size_t most) {
        std::string text;
        for (size_t i = random() % (most + 1); i > 0; --i) text += parts[random() % parts.size()];
        return text;
    };
    for (int round = 0; round < 4000; ++round) {
        std::vector<std::pair<std::string, AddedToken>> tokens;
        for (int32_t id = 0; id < 4; ++id) {
            const auto flags = random();
            tokens.emplace_back(text_of(3), AddedToken{.id = id,
                                                       .single_word = flags % 2 == 0,
                                                       .left_strip = flags / 2 % 2 == 0,
                                                       .right_strip = flags / 4 % 2 == 0});
        }
        const AddedTokens added(tokens);
        const std::string text = text_of(16);
        std::string got;
        size_t from = 0;
        size_t done = 0;
        AddedTokens::Found found{};
        while (added.next(text, from, done, found)) {
            got += std::to_string(found.id) + ":" + std::to_string(found.begin) + "-" +
                   std::to_string(found.end) + " ";
            done = found.end;
        }
        ASSERT_EQ(got, searched_tokens(tokens, text)) << round << text;
    }
}

TEST(Pattern, IsWrittenInTheSyntaxOfPcre2) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"a{2}", "a{2}"},
        {"a{2,}b", "a{2,}b"},
        {"a{2,3}?", "a{2,3}?"},
        {"a{,3}", "a{0,3}"},
        {"a{,}", "a\\{,}"},
        {"a{}", "a\\{}"},
        {"a{2", "a\\{2"},
        {"a{2,3", "a\\{2,3"},
        {"a{", "a\\{"},
        {"a{2,}+", ""},
        {"a{2}+", ""},
        {"a{2}?", ""},
        {"\\p{L}\\p{Lu}\\P{^N}\\p{^Nd}", "\\p{L}\\p{Lu}\\p{N}\\P{Nd}"},
        {"\\p{Han}\\P{Greek}\\p{L_}", "\\p{sc:Han}\\P{sc:Greek}\\p{sc:L_}"},
        {"\\p{LU}", "\\p{sc:LU}"},
        {"\\p{}", ""},
        {"\\p{L", ""},
        {"\\p{L1}", ""},
        {"\\u12aF", "\\x{12aF}"},
        {"\\u12a", ""},
        {"\\x7F", "\\x{7F}"},
        {"\\x80", ""},
        {"\\x7", ""},
        {"\\x{1F600}a", "\\x{1F600}a"},
        {"\\x{}", ""},
        {"\\x{12", ""},
        {"\\d\\D\\n\\.\\\\", "\\p{Nd}\\P{Nd}\\n\\.\\\\"},
        {"[^]a]", ""},
        {"[^a\\d\\]b]", "[^a\\p{Nd}\\]b]"},
        {"[a&b]", "[a&b]"},
        {"(\\d)((\\D)[\\d])", "(\\p{Nd})((\\P{Nd})[\\p{Nd}])"},
        {"[^\\d]\\d", "[^\\p{Nd}]\\p{Nd}"},
        {"[a", ""},
        {"(?i)a(?:b)(?=c)(?!d)(?<=e)(?<!f)(?>g)(?i:h)(i)",
         "(?i)a(?:b)(?=c)(?!d)(?<=e)(?<!f)(?>g)(?i:h)(i)"},
        {"\u00E9[\u4E2D-\u4E2E]", "\u00E9[\u4E2D-\u4E2E]"}};
    for (const auto& [pattern, syntax] : table) {
        std::string found;
        try {
            found = pcre2_syntax(pattern);
        } catch (const UsageError&) {
        }
        EXPECT_EQ(found, syntax) << pattern;
    }
    const std::vector<std::pair<std::string, std::string>> refused{
        {"ab{2,}+c", "{2,}+"},
        {"a{2}?", "{2}?"},
        {"\\x80z", "\\x80"},
        {"\\u12az", "\\u12az"},
        {"\\p{L1}z", "\\p{L1}"},
        {"\\pLz", "\\pL"},
        {"\\hz", "\\h"},
        {"[\\Sz]", "[\\S]"},
        {"a(?mz)", "(?mz"},
        {"a(*UTF)", "(*UT"},
        {"\\x{12345678z}", "\\x{12345678z"}};
    for (const auto& [pattern, part] : refused) {
        EXPECT_EQ(testing::message_of<UsageError>([&] { (void)pcre2_syntax(pattern); }),
                  "the pattern's \"" + part + "\" is not supported");
    }
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
