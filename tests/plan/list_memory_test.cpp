// SPDX-License-Identifier: Apache-2.0
// What lists of passes keep alive, term by term: all other sizes are 0, or lists end before them.
#include "src/plan/list_memory.hpp"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using enum Op;

/// One digit each, so that a sum says which terms it has.
constexpr StageBytes kDigits{.saved = 1,
                             .recomputed = 20,
                             .for_weight = 300,
                             .forward_workspace = 4'000,
                             .backward_workspace = 50'000,
                             .input_gradient_workspace = 600'000,
                             .weight_gradient_workspace = 7'000'000};
/// The bytes of a stage that stay after a pass.
constexpr StageBytes kKept{.saved = 1, .recomputed = 20, .for_weight = 300};
constexpr int64_t kBoundary = 10 * 100 * 2;         // tokens, hidden size, bf16
constexpr int64_t kStatistics = 10 * 4 * 4;         // of all tokens and one shard
constexpr int64_t kFactors = 10 * 2 * 4;            // of all tokens
constexpr int64_t kPartialGradient = 10 * 100 * 4;  // of X, in fp32

/// Four ranks with a stage each, of which this one runs `passes`.
Schedule listed(int rank, std::vector<Pass> passes, bool trains = true) {
    Schedule schedule;
    schedule.ranks = schedule.stages = 4;
    schedule.microbatches = 2;
    schedule.rank_of_stage = {0, 1, 2, 3};
    schedule.input = schedule.output = ShardMap::whole(0, 4, 0);
    schedule.passes.assign(4, {{.op = trains ? B : F}});
    for (Pass& pass : passes) {
        if (traits(pass.op).has_stage) pass.stage = static_cast<uint16_t>(rank);
    }
    schedule.passes[static_cast<size_t>(rank)] = std::move(passes);
    return schedule;
}

/// All stages and shards alike.
StepSizes of_stages(const StageBytes& stage, const ShardBytes& shard = {}) {
    StepSizes sizes;
    sizes.dtype = DType::bf16;
    sizes.stages.assign(4, stage);
    sizes.shards.assign(4, shard);
    return sizes;
}
/// Nothing but boundaries, and what the vocabulary layers keep.
StepSizes of_boundaries() {
    StepSizes sizes = of_stages({});
    sizes.tokens = 10;
    sizes.hidden = 100;
    return sizes;
}
/// Nothing but statistics and factors.
StepSizes of_statistics() {
    StepSizes sizes = of_stages({}, {.exp_logits = 7});
    sizes.tokens = 10;
    return sizes;
}

/// Activations, vocabulary and communication of a rank.
using Live = std::tuple<int64_t, int64_t, int64_t>;
Live live(const Schedule& schedule, const StepSizes& sizes, int rank) {
    const std::vector<LiveBytes> ranks = list_memory(schedule, sizes);
    EXPECT_EQ(ranks.size(), static_cast<size_t>(schedule.ranks));
    const LiveBytes& bytes = ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(bytes.total(), bytes.activations + bytes.vocabulary + bytes.communication);
    return {bytes.activations, bytes.vocabulary, bytes.communication};
}
int64_t activations(int rank, std::vector<Pass> passes, const StepSizes& sizes,
                    bool trains = true) {
    const Schedule schedule = listed(rank, std::move(passes), trains);
    const auto [bytes, vocabulary, communication] = live(schedule, sizes, rank);
    EXPECT_EQ(vocabulary, 0);
    EXPECT_EQ(communication, 0);
    return bytes;
}

TEST(ListMemory, EveryPassHasItsOwnWorkspace) {
    const StepSizes sizes = of_stages(
        kDigits,
        {.exp_logits = 0, .score_workspace = 80'000'000, .weight_gradient_workspace = 900'000'000});
    EXPECT_EQ(activations(1, {{F}}, sizes), 4'021);
    EXPECT_EQ(activations(1, {{R}}, sizes), 4'020);
    EXPECT_EQ(activations(1, {{B}}, sizes), 50'000);
    EXPECT_EQ(activations(1, {{I}}, sizes), 600'300);
    EXPECT_EQ(activations(1, {{W}}, sizes), 7'000'000);
    EXPECT_EQ(activations(1, {{S}}, sizes), 80'000'000);
    EXPECT_EQ(activations(1, {{T}}, sizes), 900'000'000);
    EXPECT_EQ(activations(1, {{E}}, sizes), 0);
    EXPECT_EQ(activations(1, {{G}}, sizes), 0);
}

TEST(ListMemory, AStageKeepsWhatFLeavesUntilItsBackward) {
    const StepSizes sizes = of_stages(kKept);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}}, sizes), 21);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}}, sizes), 42);
}

// Both passes of a pair have their workspaces, and F its activations beside those of B.
TEST(ListMemory, PairsKeepWhatBothPassesNeedOnlyIfTheyRunAtOnce) {
    const Schedule schedule =
        listed(1, {{F, 0, 0}, {.op = B, .microbatch = 0, .with_next = true}, {F, 0, 1}, {B, 0, 1}});
    const StepSizes sizes = of_stages(kDigits);
    EXPECT_EQ(list_memory(schedule, sizes)[1].activations, 50'021);
    EXPECT_EQ(list_memory(schedule, sizes, true)[1].activations, 54'042);
}

TEST(ListMemory, AStageKeepsForWWhatILeavesUntilW) {
    const StepSizes sizes = of_stages(kKept);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {I, 0, 0}, {W, 0, 0}, {F, 0, 1}, {I, 0, 1}}, sizes), 321);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {I, 0, 0}, {F, 0, 1}, {W, 0, 0}}, sizes), 342);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {I, 0, 0}, {F, 0, 1}, {I, 0, 1}}, sizes), 642);
}

TEST(ListMemory, WhatRMakesAgainIsScratchOfFAndLivesFromRToTheBackward) {
    const StepSizes kept = of_stages(kKept);
    // One microbatch's scratch beside what both keep; then it is the R's.
    EXPECT_EQ(
        activations(1, {{F, 0, 0}, {F, 0, 1}, {R, 0, 0}, {B, 0, 0}, {R, 0, 1}, {B, 0, 1}}, kept),
        1 + 1 + 20);
    EXPECT_EQ(
        activations(1, {{F, 0, 0}, {F, 0, 1}, {R, 0, 0}, {R, 0, 1}, {B, 0, 0}, {B, 0, 1}}, kept),
        21 + 21);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {F, 0, 1}, {R, 0, 1}, {B, 0, 1}, {B, 0, 0}}, kept),
              21 + 21)
        << "the other microbatch's F leaves all";
    const StepSizes all = of_stages(kDigits);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {R, 0, 0}}, all), 4'021);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {R, 0, 0}, {B, 0, 0}}, all), 50'021);
}

TEST(ListMemory, NothingStaysWhereNothingIsTrained) {
    EXPECT_EQ(activations(1, {{F, 0, 0}, {F, 0, 1}}, of_stages(kKept), false), 21);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {F, 0, 1}}, of_boundaries(), false), 3 * kBoundary);
}

// x, y, and the next x, posted ahead.
TEST(ListMemory, AMiddleRankHoldsTheMessageThatIsPostedAhead) {
    const StepSizes sizes = of_boundaries();
    EXPECT_EQ(activations(1, {{F}}, sizes), 3 * kBoundary);
    EXPECT_EQ(activations(0, {{F}}, sizes), 3 * kBoundary);
    EXPECT_EQ(activations(3, {{F}}, sizes), 2 * kBoundary) << "the last hands nothing on";
    for (const Op backward : {B, I}) {
        EXPECT_EQ(activations(1, {{backward}}, sizes), 2 * kBoundary);
        EXPECT_EQ(activations(3, {{backward}}, sizes), 2 * kBoundary);
        EXPECT_EQ(activations(0, {{backward}}, sizes), kBoundary) << "the first hands nothing on";
    }
    EXPECT_EQ(activations(1, {{R}}, sizes), kBoundary) << "the gradient may be there";
    EXPECT_EQ(activations(1, {{W}}, sizes), 0);
}

TEST(ListMemory, AStageKeepsItsInputUntilBOrW) {
    const StepSizes sizes = of_boundaries();
    EXPECT_EQ(activations(1, {{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}}, sizes), 3 * kBoundary);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}}, sizes), 4 * kBoundary);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {I, 0, 0}, {F, 0, 1}}, sizes), 4 * kBoundary);
    EXPECT_EQ(activations(1, {{F, 0, 0}, {I, 0, 0}, {W, 0, 0}, {F, 0, 1}}, sizes), 3 * kBoundary);
}

TEST(ListMemory, StagesOnOneRankHandOnWithoutAMessage) {
    const StepSizes sizes = of_boundaries();
    Schedule schedule = listed(1, {});
    schedule.rank_of_stage = {0, 1, 1, 0};
    const auto peak = [&](Op op, uint16_t stage) {
        schedule.passes[1] = {{op, stage, 0}};
        return live(schedule, sizes, 1);
    };
    EXPECT_EQ(peak(F, 1), Live(2 * kBoundary, 0, 0));
    EXPECT_EQ(peak(F, 2), Live(3 * kBoundary, 0, 0));
    EXPECT_EQ(peak(B, 2), Live(kBoundary, 0, 0));
    EXPECT_EQ(peak(B, 1), Live(2 * kBoundary, 0, 0));
}

TEST(ListMemory, ABoundaryHasATensorRanksTokensInTheTypeOfTheRun) {
    StepSizes sizes = of_boundaries();
    sizes.tensor = 2;
    EXPECT_EQ(activations(1, {{F}}, sizes), 3 * kBoundary / 2);
    sizes.tensor = 1;
    sizes.dtype = DType::fp32;
    EXPECT_EQ(activations(1, {{F}}, sizes), 3 * kBoundary * 2);
}

TEST(ListMemory, AWholeOutputLayerKeepsOneSetOfStatisticsAndTheFactors) {
    Schedule schedule = listed(3, {{S}});
    schedule.output = ShardMap::whole(16, 4, 3);
    StepSizes sizes = of_statistics();
    EXPECT_EQ(live(schedule, sizes, 3), Live(0, 7 + kStatistics + kFactors, 0));
    sizes.statistics = 6;
    EXPECT_EQ(live(schedule, sizes, 3), Live(0, 7 + 10 * 6 * 4 + kFactors, 0));
    schedule = listed(3, {{S}}, false);
    schedule.output = ShardMap::whole(16, 4, 3);
    EXPECT_EQ(live(schedule, of_statistics(), 3), Live(0, 7 + kStatistics, 0))
        << "no factors without a backward";
}

TEST(ListMemory, AShardKeepsItsOwnStatisticsBesideThoseOfAll) {
    Schedule schedule = listed(2, {{S}});
    schedule.output = ShardMap::even(16, 4);
    EXPECT_EQ(live(schedule, of_statistics(), 2), Live(0, 7 + (1 + 4) * kStatistics + kFactors, 0));
    // Tensor ranks share a whole layer, too.
    schedule.output = ShardMap::whole(16, 4, 2);
    StepSizes sizes = of_statistics();
    sizes.tensor = 2;
    EXPECT_EQ(live(schedule, sizes, 2), Live(0, 7 + (1 + 2) * kStatistics + kFactors, 0));
}

TEST(ListMemory, TheOutputLayersTensorsLiveFromSToT) {
    const int64_t one = 7 + kStatistics + kFactors;
    const auto peak = [&](std::vector<Pass> passes, bool trains) {
        Schedule schedule = listed(3, std::move(passes), trains);
        schedule.output = ShardMap::whole(16, 4, 3);
        return live(schedule, of_statistics(), 3);
    };
    EXPECT_EQ(peak({{S, 0, 0}, {T, 0, 0}, {S, 0, 1}, {T, 0, 1}}, true), Live(0, one, 0));
    EXPECT_EQ(peak({{S, 0, 0}, {S, 0, 1}, {T, 0, 0}, {T, 0, 1}}, true), Live(0, 2 * one, 0));
    EXPECT_EQ(peak({{S, 0, 0}, {S, 0, 1}}, false), Live(0, one - kFactors, 0));
}

TEST(ListMemory, AShardKeepsAllRowsOfX) {
    Schedule schedule = listed(3, {{S}});
    schedule.output = ShardMap::whole(16, 4, 3);
    StepSizes sizes = of_boundaries();
    EXPECT_EQ(live(schedule, sizes, 3), Live(0, kBoundary + kStatistics + kFactors, 0));
    sizes.tensor = 2;  // boundaries of half the rows
    EXPECT_EQ(live(schedule, sizes, 3), Live(0, kBoundary + 3 * kStatistics + kFactors, 0));
}

TEST(ListMemory, ThePartialGradientOfXIsMadeInSWithOneBarrierAndElseInT) {
    const StepSizes sizes = of_boundaries();
    const int64_t kept = kBoundary + 5 * kStatistics + kFactors;
    const auto peak = [&](Barriers barriers, std::vector<Pass> passes, bool trains = true) {
        Schedule schedule = listed(2, std::move(passes), trains);
        schedule.output = ShardMap::even(16, 4);
        schedule.barriers = barriers;
        return live(schedule, sizes, 2);
    };
    // The others' blocks of it arrive beside it.
    EXPECT_EQ(peak(Barriers::one, {{S}}), Live(0, kept + kPartialGradient, kPartialGradient));
    EXPECT_EQ(peak(Barriers::one, {{T}}), Live(0, 0, 0));
    for (const Barriers barriers : {Barriers::two, Barriers::in_line}) {
        EXPECT_EQ(peak(barriers, {{S}}), Live(0, kept, 0));
        EXPECT_EQ(peak(barriers, {{T}}), Live(0, kPartialGradient, kPartialGradient));
    }
    EXPECT_EQ(peak(Barriers::one, {{S, 0, 0}, {T, 0, 0}, {S, 0, 1}, {T, 0, 1}}),
              Live(0, kept + kPartialGradient, kPartialGradient))
        << "one at a time";
    EXPECT_EQ(peak(Barriers::one, {{S}}, false), Live(0, kept - kFactors, 0));
}

TEST(ListMemory, AWholeLayersGradientOfXStaysAtHome) {
    Schedule schedule = listed(3, {{T}});
    schedule.output = ShardMap::whole(16, 4, 3);
    StepSizes sizes = of_boundaries();
    EXPECT_EQ(live(schedule, sizes, 3), Live(0, kPartialGradient, 0));
    sizes.tensor = 2;  // shares the rows of the vocabulary, not the tokens
    EXPECT_EQ(live(schedule, sizes, 3), Live(0, kPartialGradient, kPartialGradient));
}

TEST(ListMemory, AWholeEmbeddingMakesTheInputOfTheFirstStage) {
    const StepSizes sizes = of_boundaries();
    const auto peak = [&](int rank, std::vector<Pass> passes) {
        Schedule schedule = listed(rank, std::move(passes));
        schedule.input = ShardMap::whole(16, 4, 0);
        return live(schedule, sizes, rank);
    };
    EXPECT_EQ(peak(0, {{E}}), Live(kBoundary, 0, 0));
    EXPECT_EQ(peak(0, {{E, 0, 0}, {E, 0, 1}}), Live(2 * kBoundary, 0, 0));
    EXPECT_EQ(peak(0, {{E}, {F}}), Live(3 * kBoundary, 0, 0)) << "counted once";
    EXPECT_EQ(peak(1, {{F}}), Live(3 * kBoundary, 0, 0)) << "other stages have an input of theirs";
    Schedule schedule = listed(0, {{F, 0, 0}});
    schedule.input = ShardMap::whole(16, 4, 0);
    schedule.rank_of_stage = {0, 1, 1, 0};
    schedule.passes[0].front().stage = 3;
    EXPECT_EQ(live(schedule, sizes, 0), Live(2 * kBoundary, 0, 0)) << "on the same rank, too";
}

TEST(ListMemory, PartialsOfAShardedEmbeddingAreHeldOnceOnEveryRank) {
    StepSizes sizes = of_boundaries();
    const auto peak = [&](int rank, const ShardMap& input) {
        Schedule schedule = listed(rank, {{E, 0, 0}, {E, 0, 1}});
        schedule.input = input;
        return live(schedule, sizes, rank);
    };
    EXPECT_EQ(peak(0, ShardMap::even(16, 4)), Live(2 * kBoundary, 0, kBoundary));
    EXPECT_EQ(peak(1, ShardMap::even(16, 4)), Live(0, 0, kBoundary));
    sizes.tensor = 2;  // who has a half of the rows sums up all tokens
    EXPECT_EQ(peak(0, ShardMap::whole(16, 4, 0)), Live(kBoundary, 0, kBoundary));
}

TEST(ListMemory, SaysWhatLivesAtTheMomentWhenMostDoes) {
    const auto peak = [&](int64_t exp_logits) {
        Schedule schedule = listed(1, {{F}, {S}});
        schedule.output = ShardMap::whole(16, 4, 1);
        return live(schedule, of_stages({.saved = 1, .forward_workspace = 10}, {exp_logits}), 1);
    };
    EXPECT_EQ(peak(9), Live(11, 0, 0));
    EXPECT_EQ(peak(12), Live(1, 12, 0));
    EXPECT_EQ(peak(10), Live(11, 0, 0)) << "the first of two";
}

}  // namespace
}  // namespace vocabpipe::testing
