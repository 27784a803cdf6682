// SPDX-License-Identifier: Apache-2.0
#include "src/tool/growing_text.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

TEST(GrowingText, WaitsForAllBytesOfACharacterAndGoesOn) {
    tool::GrowingText text;
    EXPECT_EQ(text.next("so "), "so ");
    EXPECT_EQ(text.next("so \uFFFD"), "");
    EXPECT_EQ(text.next("so \uFFFD\uFFFD"), "");
    EXPECT_EQ(text.next("so \u00E9"), "\u00E9");
    EXPECT_EQ(text.next("so \u00E9 on"), " on");
    EXPECT_EQ(text.last("so \u00E9 on\uFFFD"), "\uFFFD");
}

TEST(GrowingText, GoesOnWhereATokenizerTakesBackWhatItSaid) {
    tool::GrowingText text;
    EXPECT_EQ(text.next("abc"), "abc");
    EXPECT_EQ(text.next("ab"), "");
    EXPECT_EQ(text.next("abde"), "e");
    EXPECT_EQ(text.next("abdef"), "f");
}

}  // namespace
}  // namespace vocabpipe::testing
