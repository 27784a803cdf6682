// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/user_schedule.hpp"

#include "tests/schedule/files/parse.hpp"
#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

using enum Op;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Lists = std::vector<std::vector<Pass>>;

std::string refusal(Lists lists, const UserScheduleOptions& options = {}) {
    try {
        (void)user_schedule(std::move(lists), options);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(UserSchedule, InfersPlacementStagesAndMicrobatches) {
    const Schedule schedule = user_schedule(
        {{{F, 0, 0}, {F, 2, 0}, {B, 2, 0}, {B, 0, 0}}, {}, {{F, 1, 0}, {I, 1, 0}, {W, 1, 0}}});
    EXPECT_EQ(schedule.ranks, 3);
    EXPECT_EQ(schedule.stages, 3);
    EXPECT_EQ(schedule.microbatches, 1);
    EXPECT_THAT(schedule.rank_of_stage, ElementsAre(0, 2, 0));
    EXPECT_EQ(schedule.input.vocab_size(), 0);
    EXPECT_EQ(schedule.output.vocab_size(), 0);
}

TEST(UserSchedule, TakesEveryVocabMode) {
    const Schedule base = user_schedule({{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}},
                                         {{F, 1, 0}, {B, 1, 0}, {F, 1, 1}, {B, 1, 1}}});
    for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                 VocabMode::one_barrier, VocabMode::two_barriers}) {
        const Schedule schedule = insert_vocabulary(base, {.mode = mode, .vocab_size = 10});
        EXPECT_FALSE(find_violation(schedule).has_value()) << to_string(mode);
        EXPECT_EQ(schedule.output.vocab_size(), 10) << to_string(mode);
    }
}

TEST(UserSchedule, SplitsTheVocabularyOverTheRanksThatRunItsPasses) {
    const Lists lists{{{E, 0, 0}, {F, 0, 0}, {S, 0, 0}, {B, 0, 0}, {T, 0, 0}, {G, 0, 0}},
                      {{F, 1, 0}, {B, 1, 0}},
                      {{F, 2, 0}, {S, 0, 0}, {T, 0, 0}, {B, 2, 0}}};
    const Schedule schedule = user_schedule(lists, {.vocab_size = 9, .barriers = Barriers::one});
    EXPECT_THAT(schedule.input.first_row, ElementsAre(0, 9, 9, 9));
    EXPECT_THAT(schedule.output.first_row, ElementsAre(0, 4, 4, 9));
    EXPECT_EQ(schedule.barriers, Barriers::one);
    EXPECT_THAT(refusal(lists, {.vocab_size = 1}), HasSubstr("vocab_size 1: 2 ranks run S or T"));
}

TEST(UserSchedule, RefusesWhatCannotRun) {
    EXPECT_EQ(refusal({}), "schedule: ranks is 0; must be at least 1");
    EXPECT_EQ(refusal({{}}), "schedule: stages is 0; must be at least 1");
    EXPECT_EQ(refusal({{{F, 0, 0}, {B, 0, 0}}, {{F, 2, 0}, {B, 2, 0}}}),
              "rank 0, 1F0 is missing; stage 1 needs one per microbatch");
    EXPECT_EQ(refusal({{{F, 0, 0}, {B, 0, 0}, {F, 0, 4294967295}}}),
              "rank 0, 0F1 is missing; stage 0 needs one per microbatch");
    EXPECT_EQ(refusal({{{F, 0, 0}, {B, 0, 0}}, {{F, 0, 1}, {B, 0, 1}}}),
              "rank 1, position 0, 0F1 belongs to a stage on rank 0; a stage must be on one rank");
    EXPECT_EQ(refusal({{{F, 0, 0, true}, {B, 0, 0}}}),
              "rank 0, position 0, 0F0 is paired with 0B0, but one needs the other; a pair needs "
              "two microbatches");
    EXPECT_THAT(refusal({{{F, 0, 0}, {F, 0, 1, true}, {B, 0, 0, true}, {B, 0, 1}}}),
                HasSubstr("which opens another pair"));
    EXPECT_THAT(refusal({{{F, 0, 0}, {B, 0, 0, true}}}),
                HasSubstr("opens an overlapped pair, but no pass follows"));
}

}  // namespace
}  // namespace vocabpipe::testing
