// SPDX-License-Identifier: Apache-2.0
// RuleOptions::overlap_pairs: which passes become pairs, and the order of 1F1B whose vocabulary is
// sharded.
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/validate.hpp"

#include "tests/schedules/notation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

namespace vocabpipe::testing {
namespace {

Schedule paired(const std::string& family, int ranks, int microbatches, VocabMode mode,
                int depth = 0) {
    return make_schedule(family, {.ranks = ranks,
                                  .microbatches = microbatches,
                                  .vocab_mode = mode,
                                  .vocab_size = 1000,
                                  .rule = {.warm_up_depth = depth, .overlap_pairs = true}});
}

std::vector<std::string> lists_of(const Schedule& schedule) {
    std::vector<std::string> lists;
    for (const std::vector<Pass>& list : schedule.passes) lists.push_back(text_of(list));
    return lists;
}

int pairs_of(const std::vector<Pass>& list) {
    return static_cast<int>(std::ranges::count_if(list, &Pass::with_next));
}

TEST(OverlapPairs, AreABackwardAndTheForwardBehindIt) {
    const std::vector<std::string> lists{
        text_of(passes_from("E0 F0 E1 F1 E2 F2 E3 (B0;F3) G0 B1 G1 B2 G2 B3 G3")),
        text_of(passes_from("1F0 S0 T0 (1B0;1F1) S1 T1 (1B1;1F2) S2 T2 (1B2;1F3) S3 T3 1B3"))};
    EXPECT_EQ(lists_of(paired("1f1b", 2, 4, VocabMode::none)), lists);
    EXPECT_EQ(lists_of(paired("eager-1f1b", 2, 4, VocabMode::none)), lists);
}

TEST(OverlapPairs, LeaveTheOrderOfForwardsAndBackwardsAsItIs) {
    for (const char* family : {"1f1b", "eager-1f1b", "interleaved"}) {
        for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed}) {
            const Schedule with = paired(family, 3, 7, mode);
            Schedule without = make_schedule(family, {.ranks = 3,
                                                      .microbatches = 7,
                                                      .vocab_mode = mode,
                                                      .vocab_size = 1000,
                                                      .rule = {.warm_up_depth = 2}});
            for (size_t rank = 0; rank < 3; ++rank) {
                std::vector<Pass> list = transformer_passes(with.passes[rank]);
                EXPECT_GT(pairs_of(list), 0) << family;
                for (Pass& pass : list) pass.with_next = false;
                EXPECT_EQ(text_of(list), text_of(transformer_passes(without.passes[rank])))
                    << family;
            }
        }
    }
}

TEST(OverlapPairs, OfShardedVocabulariesStandBesideAUnitOfAllRanks) {
    EXPECT_EQ(
        lists_of(paired("1f1b", 2, 4, VocabMode::one_barrier)),
        (std::vector<std::string>{
            text_of(passes_from("E0 E1 F0 E2 F1 S0 E3 F2 T0 S1 F3 T1 S2 B0 T2 S3 B1 T3 G0 B2 G1 "
                                "B3 G2 G3")),
            text_of(passes_from("E0 E1 E2 1F0 S0 E3 1F1 T0 S1 (1B0;1F2) T1 S2 (1B1;1F3) T2 S3 1B2 "
                                "T3 G0 1B3 G1 G2 G3"))}));
    EXPECT_EQ(lists_of(paired("1f1b", 2, 3, VocabMode::two_barriers))[1],
              text_of(passes_from("E0 E1 E2 1F0 S0 1F1 T0 S1 1F2 T1 S2 1B0 T2 1B1 1B2 G0 G1 G2")));
    EXPECT_EQ(
        lists_of(paired("1f1b", 2, 3, VocabMode::interlaced))[1],
        text_of(passes_from("E0 E1 E2 1F0 1F1 S0 T0 (1B0;1F2) S1 T1 1B1 S2 T2 1B2 G0 G1 G2")));
}

TEST(OverlapPairs, HoldOneMicrobatchMoreThanTheWarmUpAndOnePerBarrier) {
    for (const VocabMode mode :
         {VocabMode::interlaced, VocabMode::one_barrier, VocabMode::two_barriers}) {
        for (int p = 2; p <= 6; ++p) {
            for (int m = 1; m <= 3 * p; ++m) {
                for (int depth = 1; depth <= 3; ++depth) {
                    const Schedule schedule = paired("eager-1f1b", p, m, mode, depth);
                    ASSERT_FALSE(find_violation(schedule).has_value());
                    const std::vector<int> peaks = peak_chunks(schedule);
                    for (int r = 0; r < p; ++r) {
                        const int before = 1 + depth * (p - 1 - r) + extra_microbatches(mode);
                        const auto rank = static_cast<size_t>(r);
                        ASSERT_EQ(peaks[rank], std::min(m, before + 1));
                        ASSERT_EQ(pairs_of(schedule.passes[rank]), std::max(0, m - before));
                    }
                }
            }
        }
    }
}

TEST(OverlapPairs, OfAnyDepthHaveListsOfEveryMicrobatch) {
    const auto lists = [](int depth) {
        return lists_of(paired("1f1b", 3, 4, VocabMode::one_barrier, depth));
    };
    EXPECT_EQ(lists(std::numeric_limits<int>::max()), lists(5));
    EXPECT_EQ(lists(6), lists(5));
}

}  // namespace
}  // namespace vocabpipe::testing
