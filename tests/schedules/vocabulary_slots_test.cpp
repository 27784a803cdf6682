// SPDX-License-Identifier: Apache-2.0
// The rule of vocabulary_slots.hpp as a table for 4 and 8 ranks, and the ratios where it changes.
#include "schedules/vocabulary_slots.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> kinds(int ranks, int64_t forward, int64_t backward) {
    std::vector<std::string> kinds;
    for (const UnitSlot& slot : unit_slots(ranks, forward, backward)) {
        kinds.push_back((slot.before_forward ? "BSF " : "BFS ") + std::to_string(slot.offset));
    }
    return kinds;
}

std::vector<int> warm_up_units(int ranks, int64_t forward, int64_t backward) {
    std::vector<int> units;
    for (const UnitSlot& slot : unit_slots(ranks, forward, backward)) {
        units.push_back(slot.warm_up_units);
    }
    return units;
}

/// One letter per rank; offsets change with every cost, the order only at thresholds.
std::string order(int ranks, int64_t forward, int64_t backward) {
    std::string letters;
    for (const UnitSlot& slot : unit_slots(ranks, forward, backward)) {
        letters += slot.before_forward ? 'S' : 'F';
    }
    return letters;
}

TEST(SlotRule, GivesTheTableForFourRanks) {
    EXPECT_THAT(kinds(4, 1, 2), ElementsAre("BFS -2", "BSF -2", "BSF -1", "BSF 0"));
    EXPECT_THAT(warm_up_units(4, 1, 2), ElementsAre(3, 2, 1, 0));
}

TEST(SlotRule, GivesTheTableForEightRanks) {
    EXPECT_THAT(kinds(8, 1, 2), ElementsAre("BSF -1", "BFS -2", "BSF -2", "BSF -1", "BFS -2",
                                            "BSF -2", "BSF -1", "BSF 0"));
    EXPECT_THAT(warm_up_units(8, 1, 2), ElementsAre(5, 5, 4, 3, 3, 2, 1, 0));
}

TEST(SlotRule, HasPeriodThreeAboveTheLastThreeRanks) {
    const std::string letters = order(32, 1, 2);
    for (size_t rank = 0; rank + 4 <= letters.size(); ++rank) {
        const size_t from_the_last = letters.size() - 1 - rank;
        EXPECT_EQ(letters[rank], from_the_last % 3 == 0 ? 'F' : 'S') << "rank " << rank;
    }
}

// The ratios b/f at which the order changes, found by trying every b/f = k/840 (840 makes all of
// them whole numbers); at a threshold the new order already holds, because equality fits.
std::vector<int64_t> thresholds_in_840ths(int ranks) {
    std::vector<int64_t> found;
    for (int64_t b = 841; b <= 9 * 840; ++b) {
        if (order(ranks, 840, b) != order(ranks, 840, b - 1)) found.push_back(b);
    }
    return found;
}

TEST(SlotRule, ChangesTheOrderOfFourRanksAtTheListedRatios) {
    EXPECT_THAT(thresholds_in_840ths(4), ElementsAre(2 * 840, 3 * 840));
}

TEST(SlotRule, ChangesTheOrderOfEightRanksAtTheListedRatios) {
    EXPECT_THAT(thresholds_in_840ths(8),
                ElementsAre(840 * 4 / 3, 840 * 3 / 2, 840 * 5 / 3, 2 * 840, 840 * 5 / 2, 3 * 840,
                            4 * 840, 5 * 840, 6 * 840, 7 * 840));
    EXPECT_EQ(order(8, 1, 7), "SSSSSSSS");
}

// By hand from 3.2: just below 2 the third rank from the end no longer fits, and the fourth does.
TEST(SlotRule, MovesTheUnitOfRankZeroJustBelowTwo) {
    EXPECT_THAT(kinds(4, 100, 197), ElementsAre("BSF -3", "BFS -100", "BSF -100", "BSF 0"));
    EXPECT_THAT(warm_up_units(4, 100, 197), ElementsAre(2, 2, 1, 0));
}

TEST(SlotRule, ComparesOnlyTheRatioOfCosts) {
    for (const int64_t scale : {7, 1000, 1000000007}) {
        EXPECT_EQ(order(16, 3 * scale, 4 * scale), order(16, 3, 4));
        EXPECT_EQ(order(16, 3 * scale, 6 * scale), order(16, 1, 2));
    }
}

TEST(SlotRule, KeepsEveryUnitWithinTheWindowBeforeTheLastRanksOwn) {
    for (int64_t b = 1; b <= 40; ++b) {
        for (const UnitSlot& slot : unit_slots(64, 7, b)) {
            EXPECT_LE(slot.offset, 0);
            EXPECT_GE(slot.offset, -std::max<int64_t>(b, 7));
        }
    }
}

// A backward cheaper than the forward is outside the rule; it gives the order of equal costs.
TEST(SlotRule, TreatsACheapBackwardAsEqualToTheForward) {
    EXPECT_EQ(order(8, 10, 3), order(8, 1, 1));
    EXPECT_EQ(order(8, 10, -5), order(8, 1, 1));
    // By hand, from the last rank up: 0 fits, -f = -b fits, then alternately "after F" and "before
    // F".
    EXPECT_EQ(order(8, 1, 1), "SFSFSFSS");
}

}  // namespace
}  // namespace vocabpipe::testing
