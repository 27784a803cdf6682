// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/v_figures.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

int64_t unit_makespan(const Schedule& schedule) {
    return time_passes(schedule, unit_costs()).makespan;
}

TEST(VHalf, MeetsTheOracles) {
    EXPECT_EQ(expect_oracles_met("V-Half", "v-half"), 9);
}

TEST(VMin, MeetsTheOracles) {
    EXPECT_EQ(expect_oracles_met("V-Min", "v-min"), 9);
}

TEST(VHalf, HasTheBubbleAndThePeakOfTheFormula) {
    for (int p = 2; p <= 16; ++p) {
        for (const int m : {2 * p, 3 * p + 1, 5 * p}) {
            SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
            const Schedule schedule = v_schedule("v-half", {.ranks = p, .microbatches = m});
            const int bubble = p == 2 ? 1 : 6 * ((p + 1) / 2) - 7;
            EXPECT_EQ(unit_makespan(schedule), 6 * m + bubble);
            EXPECT_EQ(highest_peak(schedule), 2 * (p / 2) + 2);
        }
    }
}

TEST(VMin, HasTheBubbleAndThePeakOfTheFormula) {
    for (int p = 2; p <= 16; ++p) {
        for (const int m : {2 * p, 3 * p + 1, 5 * p}) {
            SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
            const Schedule schedule = v_schedule("v-min", {.ranks = p, .microbatches = m});
            EXPECT_EQ(unit_makespan(schedule), 6 * m + 4 * p - (p % 3 == 0 ? 7 : 5));
            EXPECT_EQ(highest_peak(schedule), 2 * ((p + 1) / 3) + 2);
        }
    }
}

TEST(VHalf, KeepsTheSameMemoryOnEveryRankWithinOneChunk) {
    for (const char* family : {"v-half", "v-min"}) {
        for (int p = 1; p <= 16; ++p) {
            SCOPED_TRACE(std::string(family) + " p=" + std::to_string(p));
            const Schedule schedule = v_schedule(family, {.ranks = p, .microbatches = 3 * p});
            EXPECT_GE(lowest_peak(schedule), highest_peak(schedule) - 1);
        }
    }
}

// The paper's claim (section 6.4): with sharded vocabulary layers V-Half has equal work and equal
// memory on every rank. Its own lists hold p+2 chunks and one microbatch more per barrier; fillers
// may end earlier on some ranks than on others, but never keep more.
TEST(VHalf, WithVocabularyPassesHasEqualWorkAndMemoryOnEveryRank) {
    for (const int p : {2, 4, 6, 8, 16}) {
        for (const auto& [mode, barriers] :
             {std::pair{VocabMode::one_barrier, 1}, std::pair{VocabMode::two_barriers, 2}}) {
            const PassCosts costs = PassCosts::uniform(12, 24, 4);
            const Schedule schedule = make_schedule("v-half", {.ranks = p,
                                                               .microbatches = 4 * p,
                                                               .vocab_mode = mode,
                                                               .vocab_size = 1024,
                                                               .costs = costs});
            SCOPED_TRACE("p=" + std::to_string(p) + " " + std::string(to_string(mode)));
            EXPECT_LE(highest_peak(schedule), p + 2 + 2 * barriers);
            EXPECT_GE(lowest_peak(schedule), highest_peak(schedule) - 2);
            for (const int64_t busy : time_passes(schedule, costs).busy) {
                EXPECT_EQ(busy, 4 * p * (2 * (12 + 24) + 2 * (4 + 1)));
            }
        }
    }
}

TEST(VHalf, IsValidForEveryNumberOfMicrobatches) {
    for (const char* family : {"v-half", "v-min"}) {
        for (int p = 1; p <= 9; ++p) {
            for (int m = 1; m <= 2 * p + 2; ++m) {
                SCOPED_TRACE(std::string(family) + " p=" + std::to_string(p) +
                             " m=" + std::to_string(m));
                ASSERT_NO_THROW((void)v_schedule(family, {.ranks = p, .microbatches = m}));
            }
        }
    }
}

TEST(VHalf, DoesNotDependOnTheCosts) {
    const ScheduleOptions unit{.ranks = 4, .microbatches = 8, .costs = unit_costs()};
    ScheduleOptions other = unit;
    other.costs = v_costs(3, 20, 1, 7);
    for (const char* family : {"v-half", "v-min"}) {
        EXPECT_EQ(v_schedule(family, unit).passes, v_schedule(family, other).passes);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
