// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/growing_text.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

std::vector<int32_t> first_ids(int count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

/// Decodes ids as words, with the space of the first one left out, as SentencePiece does.
struct Words {
    std::vector<std::string> pieces;
    size_t* longest = nullptr;  ///< most tokens decoded at a time

    std::string operator()(std::span<const int32_t> ids) const {
        if (longest != nullptr) *longest = std::max(*longest, ids.size());
        std::string text;
        for (const int32_t id : ids) text += pieces[static_cast<size_t>(id)];
        return text.starts_with(' ') ? text.substr(1) : text;
    }
};

TEST(GrowingText, KeepsTheSpacesBetweenTokens) {
    tool::GrowingText text(Words{{" so", " it", "s", " on", "."}});
    EXPECT_EQ(text.next(first_ids(2)), "so it");
    EXPECT_EQ(text.next(first_ids(3)), "s");
    EXPECT_EQ(text.next(first_ids(4)), " on");
    EXPECT_EQ(text.last(first_ids(5)), ".");
}

/// Leaves out all white space at the beginning, as SentencePiece does with
/// remove_extra_whitespaces.
TEST(GrowingText, KeepsARunOfSpaces) {
    const std::vector<std::string> pieces{" a", " ", " ", " ", "b", " ", "\n", "c"};
    tool::GrowingText text([&](std::span<const int32_t> ids) {
        std::string all;
        for (const int32_t id : ids) all += pieces[static_cast<size_t>(id)];
        const size_t begin = all.find_first_not_of(" \n");
        return begin == std::string::npos ? std::string() : all.substr(begin);
    });
    std::string all;
    for (int count = 1; count <= 8; ++count) all += text.next(first_ids(count));
    EXPECT_EQ(all + text.last(first_ids(8)), "a   b \nc");
}

TEST(GrowingText, WaitsForAllBytesOfACharacter) {
    // What two byte tokens make together is no sum of what each makes.
    tool::GrowingText text([](std::span<const int32_t> ids) {
        const std::vector<std::string> by_count{
            "", "so ", "so \uFFFD", "so \uFFFD\uFFFD", "so \u00E9", "so \u00E9\uFFFD"};
        return ids.empty() ? std::string() : by_count[static_cast<size_t>(ids.back()) + 1];
    });
    EXPECT_EQ(text.next(first_ids(1)), "so ");
    EXPECT_EQ(text.next(first_ids(2)), "");
    EXPECT_EQ(text.next(first_ids(3)), "");
    EXPECT_EQ(text.next(first_ids(4)), "\u00E9");
    EXPECT_EQ(text.next(first_ids(5)), "");
    EXPECT_EQ(text.last(first_ids(5)), "\uFFFD");
}

TEST(GrowingText, DecodesAFewTokensAtATime) {
    size_t longest = 0;
    tool::GrowingText text(Words{std::vector<std::string>(1000, " a"), &longest});
    std::string all = text.next(first_ids(1));
    for (int count = 2; count <= 1000; ++count) all += text.next(first_ids(count));
    EXPECT_EQ(all.size(), 1999U);
    EXPECT_LE(longest, 3U);
}

}  // namespace
}  // namespace vocabpipe::testing
