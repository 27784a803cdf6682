// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/notation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace vocabpipe::testing {
namespace {

Schedule one_f_one_b(int ranks, int microbatches, VocabMode mode) {
    return make_schedule(
        "1f1b",
        {.ranks = ranks, .microbatches = microbatches, .vocab_mode = mode, .vocab_size = 1000});
}

void expect_lists(const Schedule& schedule, const std::vector<std::string>& lists) {
    ASSERT_EQ(schedule.passes.size(), lists.size());
    for (size_t rank = 0; rank < lists.size(); ++rank) {
        EXPECT_EQ(text_of(schedule.passes[rank]),
                  text_of(passes_from(lists[rank], {.stage = static_cast<int>(rank)})));
    }
}

// The first table of docs/schedules.md, for enough microbatches to fill the pipeline.
TEST(OneFOneB, HoldsPMinusRMicrobatchesPlusOnePerBarrier) {
    for (int p = 2; p <= 12; ++p) {
        for (int r = 0; r < p; ++r) {
            const auto peak = [&](VocabMode mode) {
                return peak_in_flight(one_f_one_b(p, 4 * p, mode).passes[static_cast<size_t>(r)]);
            };
            EXPECT_EQ(peak(VocabMode::none), p - r);
            EXPECT_EQ(peak(VocabMode::redistributed), p - r);
            EXPECT_EQ(peak(VocabMode::one_barrier), p - r + 1);
            EXPECT_EQ(peak(VocabMode::two_barriers), p - r + 2);
            EXPECT_EQ(peak(VocabMode::interlaced), 3 * p / 2 - r) << "p=" << p << " r=" << r;
        }
    }
}

TEST(OneFOneB, NeverHoldsMoreWithFewMicrobatches) {
    for (int p = 2; p <= 8; ++p) {
        for (int m = 1; m <= 2 * p; ++m) {
            for (int r = 0; r < p; ++r) {
                const auto peak = [&](VocabMode mode) {
                    return peak_in_flight(one_f_one_b(p, m, mode).passes[static_cast<size_t>(r)]);
                };
                EXPECT_EQ(peak(VocabMode::none), std::min(m, p - r));
                EXPECT_LE(peak(VocabMode::one_barrier), std::min(m, p - r + 1));
                EXPECT_LE(peak(VocabMode::two_barriers), std::min(m, p - r + 2));
                EXPECT_LE(peak(VocabMode::interlaced), std::min(m, 3 * p / 2 - r));
            }
        }
    }
}

// 5.2 with whole vocabulary layers on the first and the last rank.
TEST(OneFOneB, PutsWholeVocabularyLayersBesideTheirStage) {
    const std::vector<std::string> expected{"E0 F0 E1 F1 B0 G0 E2 F2 B1 G1 B2 G2",
                                            "F0 S0 T0 B0 F1 S1 T1 B1 F2 S2 T2 B2"};
    expect_lists(one_f_one_b(2, 3, VocabMode::none), expected);
    expect_lists(one_f_one_b(2, 3, VocabMode::redistributed), expected);
}

TEST(OneFOneB, RunsOneMicrobatchAtATimeOnOneRank) {
    for (const VocabMode mode : kEveryMode) {
        expect_lists(one_f_one_b(1, 3, mode),
                     {"E0 F0 S0 T0 B0 G0 E1 F1 S1 T1 B1 G1 E2 F2 S2 T2 B2 G2"});
    }
}

// The rule of 3.4 needs p + barriers microbatches; below that its lists for the least number are
// cut. By hand: 3.4 for p = 2 with m = 3 (one barrier) and m = 4 (two), then without microbatches
// >= m.
TEST(OneFOneB, DropsMicrobatchesBelowTheLeastNumberOfTheRule) {
    expect_lists(one_f_one_b(2, 1, VocabMode::one_barrier),
                 {"E0 F0 S0 T0 B0 G0", "E0 F0 S0 B0 T0 G0"});
    expect_lists(one_f_one_b(2, 1, VocabMode::two_barriers),
                 {"E0 F0 S0 T0 B0 G0", "E0 F0 S0 T0 B0 G0"});
    expect_lists(one_f_one_b(2, 2, VocabMode::one_barrier),
                 {"E0 E1 F0 F1 S0 T0 S1 B0 T1 B1 G0 G1", "E0 E1 F0 S0 F1 B0 T0 S1 B1 T1 G0 G1"});
}

TEST(OneFOneB, RunsNoVocabularyPassesOnRanksWithoutRows) {
    // 2 rows over 4 ranks: floor(2k/4) = 0 0 1 1 2, so ranks 1 and 3 hold one row each.
    const Schedule schedule = make_schedule(
        "1f1b",
        {.ranks = 4, .microbatches = 8, .vocab_mode = VocabMode::one_barrier, .vocab_size = 2});
    for (size_t rank = 0; rank < 4; ++rank) {
        const size_t expected = rank % 2 == 1 ? 6 * 8 : 2 * 8;
        EXPECT_EQ(schedule.passes[rank].size(), expected) << "rank " << rank;
    }
}

// 3.3: with a margin the order is the one for a shorter backward. Rank 1 of p = 4 becomes B, F,
// unit (just below b = 2f) with two warm-up units; written out by hand from 3.4.
TEST(OneFOneB, BuildsTheOrderForTheBackwardLessTheMargin) {
    const auto list = [](int64_t margin) {
        const Schedule schedule =
            make_schedule("1f1b", {.ranks = 4,
                                   .microbatches = 8,
                                   .vocab_mode = VocabMode::one_barrier,
                                   .vocab_size = 1000,
                                   .rule = {.broadcast_margin = margin},
                                   .costs = PassCosts::uniform(100, 200, 30)});
        return text_of(schedule.passes[1]);
    };
    EXPECT_THAT(list(0), ::testing::StartsWith("E0 E1 E2 1F0 E3 1F1 E4 1F2 S0 1F3 T0 S1 T1 S2 1B0 "
                                               "T2 S3 E5 1F4 1B1 T3 S4 E6 1F5"));
    EXPECT_THAT(list(3),
                ::testing::StartsWith("E0 E1 E2 1F0 E3 1F1 E4 1F2 S0 1F3 T0 S1 T1 S2 E5 1B0 "
                                      "1F4 T2 S3 E6 1B1 1F5 T3 S4 E7 G0"));
}

}  // namespace
}  // namespace vocabpipe::testing
