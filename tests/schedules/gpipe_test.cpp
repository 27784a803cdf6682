// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/notation.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

void expect_lists(const ScheduleOptions& options, const std::vector<std::string>& lists) {
    const Schedule schedule = make_schedule("gpipe", options);
    ASSERT_EQ(schedule.passes.size(), lists.size());
    for (size_t rank = 0; rank < lists.size(); ++rank) {
        EXPECT_EQ(text_of(schedule.passes[rank]),
                  text_of(passes_from(lists[rank], {.stage = static_cast<int>(rank)})));
    }
}

TEST(GPipe, RunsAllForwardsThenAllBackwards) {
    expect_lists({.ranks = 2, .microbatches = 3, .vocab_size = 1000},
                 {"E0 F0 E1 F1 E2 F2 B0 G0 B1 G1 B2 G2", "F0 S0 T0 F1 S1 T1 F2 S2 T2 B0 B1 B2"});
}

// A unit T_{j-1} S_j after every forward from the (p-r)-th on; G one B later than it could be,
// which is the time that its broadcast has.
TEST(GPipe, AlternatesUnitsWithForwardsWhenTheVocabularyIsSharded) {
    const std::vector<std::string> expected{
        "E0 E1 F0 E2 F1 S0 E3 F2 T0 S1 F3 T1 S2 T2 S3 T3 B0 B1 G0 B2 G1 B3 G2 G3",
        "E0 E1 E2 F0 S0 E3 F1 T0 S1 F2 T1 S2 F3 T2 S3 T3 B0 B1 B2 G0 B3 G1 G2 G3"};
    for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
        expect_lists({.ranks = 2, .microbatches = 4, .vocab_mode = mode, .vocab_size = 1000},
                     expected);
    }
}

TEST(GPipe, RunsUnitsInLineWhenInterlaced) {
    expect_lists(
        {.ranks = 2, .microbatches = 4, .vocab_mode = VocabMode::interlaced, .vocab_size = 1000},
        {"E0 E1 F0 E2 F1 ST0 E3 F2 ST1 F3 ST2 ST3 B0 B1 G0 B2 G1 B3 G2 G3",
         "E0 E1 E2 F0 ST0 E3 F1 ST1 F2 ST2 F3 ST3 B0 B1 B2 G0 B3 G1 G2 G3"});
}

TEST(GPipe, EvaluatesWithoutBackwards) {
    expect_lists({.ranks = 2, .microbatches = 3, .vocab_size = 1000, .forward_only = true},
                 {"E0 F0 E1 F1 E2 F2", "F0 S0 F1 S1 F2 S2"});
    expect_lists({.ranks = 2,
                  .microbatches = 3,
                  .vocab_mode = VocabMode::two_barriers,
                  .vocab_size = 1000,
                  .forward_only = true},
                 {"E0 E1 F0 E2 F1 S0 F2 S1 S2", "E0 E1 E2 F0 S0 F1 S1 F2 S2"});
}

TEST(GPipe, HoldsEveryMicrobatch) {
    for (const VocabMode mode : kEveryMode) {
        for (int p = 1; p <= 6; ++p) {
            const Schedule schedule = make_schedule(
                "gpipe", {.ranks = p, .microbatches = 7, .vocab_mode = mode, .vocab_size = 1000});
            for (const auto& list : schedule.passes) EXPECT_EQ(peak_in_flight(list), 7);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
