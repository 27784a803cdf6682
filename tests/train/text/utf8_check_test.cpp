// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/utf8_check.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace vocabpipe
