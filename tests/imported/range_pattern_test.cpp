// SPDX-License-Identifier: Apache-2.0
#include "src/imported/range_pattern.hpp"

#include "src/imported/range_rules.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::imported {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RangePattern, TakesStagePassAndMicrobatchFromAName) {
    const RangePattern pattern("PP:{stage}{op}{microbatch}");
    const auto found = pattern.match("PP:12W345");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->stage, 12);
    EXPECT_EQ(found->op, Op::W);
    EXPECT_EQ(found->microbatch, 345U);
    for (const char* const other : {"PP:12W", "PP:W3", "PP:1X3", "PP:1S3", "PP:1F3x", " PP:1F3", "",
                                    "PP:1SEND_F3", "PP:99999F1", "PP:1F99999999999"}) {
        EXPECT_FALSE(pattern.match(other)) << other;
    }
}

TEST(RangePattern, LetsAStarStandForAnyText) {
    EXPECT_TRUE(RangePattern("nccl:recv*").match("nccl:recv 0<-1"));
    EXPECT_TRUE(RangePattern("nccl:recv*").match("nccl:recv"));
    EXPECT_FALSE(RangePattern("nccl:recv*").match("nccl:send 0<-1"));
    const RangePattern inner("*stage {stage} of *, microbatch {microbatch}");
    const auto found = inner.match("a stage x stage 3 of 4, microbatch 5");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->stage, 3);
    EXPECT_EQ(found->microbatch, 5U);
    // Each star that fails gives up once, so that a long name costs its length and not its powers.
    EXPECT_FALSE(RangePattern("*a*a*a*a*a*a*a*b").match(std::string(20000, 'a')));
}

TEST(RangePattern, RefusesWhatItDoesNotKnow) {
    EXPECT_THAT([] { RangePattern("F{rank}"); },
                ThrowsMessage<UsageError>(HasSubstr("has {rank}; use {stage}, {microbatch}")));
    EXPECT_THAT([] { RangePattern(""); }, ThrowsMessage<UsageError>(HasSubstr("is empty")));
    EXPECT_THAT(
        [] {
            return make_range_rules("mine", {{"recieve", {"{op}"}}});
        },
        ThrowsMessage<UsageError>(HasSubstr("did you mean receive?")));
    EXPECT_THAT(
        [] {
            return make_range_rules("mine", {{"pass", {"F {microbatch}"}}});
        },
        ThrowsMessage<UsageError>(HasSubstr("has no {op}; add it")));
    EXPECT_THAT(
        [] {
            return make_range_rules("mine", {{"arrival", {"recv"}}});
        },
        ThrowsMessage<UsageError>(HasSubstr("no pattern is of a pass")));
}

}  // namespace
}  // namespace vocabpipe::imported
