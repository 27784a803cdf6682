// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/utf8_check.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace vocabpipe {
namespace {

struct Case {
    std::string_view text;
    int64_t invalid, first;
};

Utf8Check check(std::string_view text, size_t block) {
    Utf8Check found;
    for (size_t at = 0; at < text.size(); at += block) found.feed(text.substr(at, block));
    found.end();
    return found;
}

TEST(Utf8Check, CountsBytesOutsideOfCharactersWhereverBlocksEnd) {
    using namespace std::string_view_literals;
    const Case cases[] = {
        {"plain, \xc3\xa9, \xe2\x82\xac, \xf0\x9f\x98\x80, \xf4\x8f\xbf\xbf"sv, 0, -1},
        {"caf\xe9 \xef"sv, 2, 3},
        {"\x80\xbf"sv, 2, 0},
        {"a\xc0\xaf"sv, 2, 1},             // overlong
        {"a\xe0\x80\xaf"sv, 3, 1},         // overlong
        {"a\xed\xa0\x80"sv, 3, 1},         // a surrogate
        {"a\xf4\x90\x80\x80"sv, 4, 1},     // beyond U+10FFFF
        {"ab\xf0\x9f\x98"sv, 3, 2},        // ends within
        {"\xf0\x9f\x98\xc3\xa9"sv, 3, 0},  // another begins within
        {"\xff\xfe"sv, 2, 0},
    };
    for (const Case& one : cases) {
        for (const size_t block : {1, 2, 3, 100}) {
            const Utf8Check found = check(one.text, block);
            EXPECT_EQ(found.bytes(), static_cast<int64_t>(one.text.size())) << one.text;
            EXPECT_EQ(found.invalid(), one.invalid) << one.text << " by " << block;
            EXPECT_EQ(found.first_invalid(), one.first) << one.text << " by " << block;
        }
    }
    EXPECT_EQ(check(std::string_view("a\0b\0", 4), 3).zeros(), 2);
}

/// Bytes of the character at the beginning of `text`, by the number that they stand for; 0: none.
size_t character_bytes(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x80) return 1;
    const size_t count = (byte(0) & 0xe0) == 0xc0   ? 2
                         : (byte(0) & 0xf0) == 0xe0 ? 3
                         : (byte(0) & 0xf8) == 0xf0 ? 4
                                                    : 0;
    if (count == 0 || count > text.size()) return 0;
    uint32_t code = byte(0) & (0x7fU >> count);
    for (size_t i = 1; i < count; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
        code = code * 64 + (byte(i) & 0x3fU);
    }
    const uint32_t least = count == 2 ? 0x80 : count == 3 ? 0x800 : 0x10000;
    return code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : count;
}

TEST(Utf8Check, CountsWhatADecoderCounts) {
    constexpr std::string_view kBytes(
        "\0a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xed\xee\xef\xf0\xf1\xf4\xf5\xf8"
        "\xff",
        24);
    std::mt19937 random(7);
    for (int round = 0; round < 20000; ++round) {
        std::string text;
        for (size_t i = random() % 24; i > 0; --i) {
            text += kBytes[random() % kBytes.size()];
            if (random() % 8 == 0) text.append(random() % 20, 'x');
            if (random() % 4 == 0) text += "\xe2\x82\xac";
        }
        int64_t invalid = 0;
        int64_t first = -1;
        int64_t zeros = 0;
        for (size_t at = 0; at < text.size();) {
            const size_t bytes = character_bytes(std::string_view(text).substr(at));
            if (bytes == 0 && invalid++ == 0) first = static_cast<int64_t>(at);
            zeros += text[at] == '\0' ? 1 : 0;
            at += bytes == 0 ? 1 : bytes;
        }
        const Utf8Check found = check(text, 1 + random() % 40);
        ASSERT_EQ(found.bytes(), static_cast<int64_t>(text.size())) << round;
        ASSERT_EQ(found.invalid(), invalid) << round;
        ASSERT_EQ(found.first_invalid(), first) << round;
        ASSERT_EQ(found.zeros(), zeros) << round;
    }
}

TEST(Utf8Check, OfFilesAddsThemUpAndNamesTheFirst) {
    TextCheck all;
    const auto add = [&](const std::string& path, std::string_view text) {
        all.add(path, check(text, 100));
    };
    add("a", "fine");
    EXPECT_EQ(all.first, "");
    add("b", std::string_view("x\0\xff\xff", 4));
    add("c", "\xff");
    EXPECT_EQ(all.first, "b at byte 2");
    EXPECT_EQ(all.bytes, 9);
    EXPECT_EQ(all.invalid, 3);
    EXPECT_EQ(all.zeros, 1);
}

}  // namespace
}  // namespace vocabpipe
