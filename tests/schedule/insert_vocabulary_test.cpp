// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/insert_vocabulary.hpp"

#include "src/schedule/fill_idle.hpp"
#include "tests/support/brute_force_checker.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/validate.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace vocabpipe::testing {
namespace {

using ::testing::Each;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr VocabMode kModes[] = {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                VocabMode::one_barrier, VocabMode::two_barriers};

/// Transformer passes of a random valid schedule: any placement, stages without order, B or I and
/// W.
Schedule random_base(std::mt19937& random, bool forward_only) {
    Schedule frame;
    frame.ranks = 1 + static_cast<int>(random() % 4);
    frame.stages = 1 + static_cast<int>(random() % 6);
    frame.microbatches = 1 + static_cast<int>(random() % 6);
    for (int stage = 0; stage < frame.stages; ++stage) {
        frame.rank_of_stage.push_back(static_cast<int>(random() % frame.ranks));
    }
    frame.input = frame.output = ShardMap::even(0, frame.ranks);
    return random_valid_schedule(std::move(frame), forward_only, random);
}

PassCosts random_costs(std::mt19937& random, const Schedule& base) {
    const auto up_to = [&](int64_t most) {
        return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1));
    };
    PassCosts costs;
    costs.stage.assign(static_cast<size_t>(base.stages), {});
    costs.rank.assign(static_cast<size_t>(base.ranks), {});
    for (auto* table : {&costs.stage, &costs.rank}) {
        for (auto& row : *table) {
            for (int64_t& cost : row) cost = up_to(20);  // 0 included
        }
    }
    costs.hop = up_to(5);
    costs.c0 = up_to(30);
    costs.c1 = up_to(10);
    costs.reduce = up_to(10);
    costs.gradient = up_to(10);
    return costs;
}

std::vector<Pass> transformer_passes(const std::vector<Pass>& list) {
    std::vector<Pass> passes;
    for (const Pass& pass : list) {
        if (traits(pass.op).has_stage) passes.push_back(pass);
    }
    std::sort(passes.begin(), passes.end(), [](const Pass& a, const Pass& b) {
        return std::tie(a.op, a.stage, a.microbatch) < std::tie(b.op, b.stage, b.microbatch);
    });
    return passes;
}

TEST(InsertVocabulary, MakesEveryValidBaseAValidScheduleInEveryMode) {
    std::mt19937 random(7);
    for (int i = 0; i < 400; ++i) {
        const Schedule base = random_base(random, i % 8 == 0);
        const PassCosts costs = random_costs(random, base);
        for (const VocabMode mode : kModes) {
            const auto rows = static_cast<int64_t>(base.ranks + 5);
            const Schedule made = insert_vocabulary(
                base, {.mode = mode, .vocab_size = rows, .costs = costs, .chunk_limit = 1000});
            ASSERT_EQ(brute_force_fault(made), "") << i << " " << to_string(mode) << "\n"
                                                   << describe(base) << describe(made);
            ASSERT_FALSE(find_violation(made).has_value());
            for (size_t rank = 0; rank < base.passes.size(); ++rank) {
                ASSERT_EQ(transformer_passes(made.passes[rank]),
                          transformer_passes(base.passes[rank]));
            }
        }
    }
}

Schedule base_1f1b(int ranks, int microbatches) {
    Schedule base = make_schedule("1f1b", {.ranks = ranks,
                                           .microbatches = microbatches,
                                           .vocab_mode = VocabMode::none,
                                           .vocab_size = 100});
    for (auto& list : base.passes) {
        std::erase_if(list, [](const Pass& pass) { return traits(pass.op).vocabulary; });
    }
    base.input = base.output = ShardMap::even(0, ranks);
    return base;
}

// Section 5.2 of the paper: a barrier costs at most one microbatch in flight on every rank.
TEST(InsertVocabulary, AddsAtMostOneMicrobatchInFlightPerBarrier) {
    for (const int p : {2, 3, 4, 8}) {
        const Schedule base = base_1f1b(p, 4 * p);
        const std::vector<int> before = peak_chunks(base);
        const int most = *std::max_element(before.begin(), before.end());
        for (const auto& [mode, barriers] :
             {std::pair{VocabMode::one_barrier, 1}, std::pair{VocabMode::two_barriers, 2}}) {
            const Schedule made = insert_vocabulary(base, {.mode = mode, .vocab_size = 100});
            EXPECT_THAT(peak_chunks(made), Each(Le(most + barriers))) << p;
        }
    }
}

// 1F1B has an order of its own for vocabulary passes (the slot rule): the general insertion, which
// knows nothing of it, must come close to it at the same memory. Idle is measured against 1F1B's
// fill and drain, the part that no placement of S and T can remove.
TEST(InsertVocabulary, ComesWithinOnePercentOfTheSlotRuleOnPlain1F1B) {
    for (const int p : {4, 8}) {
        for (const int64_t unit : {2, 4, 8}) {
            const PassCosts costs = PassCosts::uniform(12, 24, unit);
            for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
                const Schedule made = insert_vocabulary(
                    base_1f1b(p, 64), {.mode = mode, .vocab_size = 100, .costs = costs});
                const Schedule rule = make_schedule("1f1b", {.ranks = p,
                                                             .microbatches = 64,
                                                             .vocab_mode = mode,
                                                             .vocab_size = 100,
                                                             .costs = costs});
                EXPECT_LE(static_cast<double>(time_passes(made, costs).makespan),
                          1.01 * static_cast<double>(time_passes(rule, costs).makespan))
                    << p << " " << unit << " " << to_string(mode);
            }
        }
    }
}

TEST(InsertVocabulary, TakesAnRWithoutACostForAForward) {
    const Schedule base = with_recomputation(base_1f1b(4, 8));
    const auto inserted = [&](int64_t cost_of_r) {
        PassCosts costs = PassCosts::uniform(1200, 2400, 400);
        costs.stage.front()[static_cast<size_t>(Op::R)] = cost_of_r;
        return insert_vocabulary(
            base, {.mode = VocabMode::one_barrier, .vocab_size = 100, .costs = costs});
    };
    EXPECT_EQ(inserted(0).passes, inserted(1200).passes);
    EXPECT_NE(inserted(1).passes, inserted(1200).passes);
}

TEST(InsertVocabulary, NamesTheLimitThatNoPlacementKeeps) {
    try {
        (void)insert_vocabulary(base_1f1b(4, 16), {.vocab_size = 100, .chunk_limit = 2});
        FAIL() << "was accepted";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("RuleOptions::memory_limit 2: the schedule"));
        EXPECT_THAT(error.what(), HasSubstr("needs"));
    }
}

TEST(InsertVocabulary, RefusesAnInvalidBase) {
    Schedule base = base_1f1b(2, 2);
    base.passes[0].pop_back();
    EXPECT_THROW((void)insert_vocabulary(base, {.vocab_size = 10}), ScheduleError);
}

TEST(InsertVocabulary, RefusesABaseWithVocabularyPassesAndNoRows) {
    EXPECT_THROW((void)insert_vocabulary(base_1f1b(2, 2), {.vocab_size = 0}), UsageError);
    const Schedule complete =
        insert_vocabulary(base_1f1b(2, 2), {.mode = VocabMode::none, .vocab_size = 3});
    EXPECT_THROW((void)insert_vocabulary(complete, {.vocab_size = 3}), UsageError);
}

TEST(InsertVocabulary, PutsWholeLayersBesideTheirStageAndNotInsideAPair) {
    Schedule base;
    base.ranks = base.stages = 1;
    base.microbatches = 2;
    base.rank_of_stage = {0};
    base.input = base.output = ShardMap::even(0, 1);
    base.passes = {{{Op::F, 0, 0}, {Op::F, 0, 1, true}, {Op::B, 0, 0}, {Op::B, 0, 1}}};
    const Schedule made = insert_vocabulary(base, {.mode = VocabMode::none, .vocab_size = 3});
    std::string text;
    for (const Pass& pass : made.passes[0]) text += to_string(pass) + " ";
    EXPECT_EQ(text, "E0 0F0 S0 T0 E1 0F1 0B0 S1 T1 G0 0B1 G1 ");
}

// --- fillers

TEST(FillIdle, KeepsEveryLimitAndEveryPass) {
    std::mt19937 random(3);
    int filled = 0;
    for (int i = 0; i < 300; ++i) {
        const Schedule base = random_base(random, false);
        const PassCosts costs = random_costs(random, base);
        const Schedule lists = insert_vocabulary(
            base, {.mode = kModes[i % 5], .vocab_size = 9, .costs = costs, .chunk_limit = 1000});
        FillOptions options{.chunk_limit = peak_chunks(lists),
                            .exp_logits_limit = 1 + i % 3,
                            .overrun_percent = 50 * (i % 3),
                            .look_ahead = i % 2 == 0};
        const auto made = fill_idle(lists, costs, options);
        if (!made) continue;
        ++filled;
        ASSERT_EQ(brute_force_fault(*made), "") << describe(lists) << describe(*made);
        const std::vector<int> peaks = peak_chunks(*made);
        for (size_t rank = 0; rank < peaks.size(); ++rank) {
            ASSERT_LE(peaks[rank], options.chunk_limit[rank]);
        }
    }
    EXPECT_GT(filled, 150);
}

// Rank 0 waits for the gradient of microbatch 0 with microbatch 1 to recompute.
TEST(FillIdle, DoesNotRecomputeEarlier) {
    Schedule base;
    base.ranks = base.stages = 2;
    base.microbatches = 2;
    base.rank_of_stage = {0, 1};
    base.input = base.output = ShardMap::even(0, 2);
    using enum Op;
    base.passes = {{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {R, 0, 1}, {B, 0, 1}},
                   {{F, 1, 0}, {B, 1, 0}, {F, 1, 1}, {B, 1, 1}}};
    const auto made = fill_idle(base, PassCosts::uniform(10, 20, 0), {.chunk_limit = {2, 2}});
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(made->passes, base.passes);
}

// Hand-derived: rank 0 waits for I0 of rank 1; the hole is as long as a W of the microbatch before.
TEST(FillIdle, RunsWWhereTheRankWouldWait) {
    Schedule base;
    base.ranks = base.stages = 2;
    base.microbatches = 2;
    base.rank_of_stage = {0, 1};
    base.input = base.output = ShardMap::even(0, 2);
    using enum Op;
    base.passes = {{{F, 0, 0}, {F, 0, 1}, {I, 0, 0}, {I, 0, 1}, {W, 0, 0}, {W, 0, 1}},
                   {{F, 1, 0}, {I, 1, 0}, {W, 1, 0}, {F, 1, 1}, {I, 1, 1}, {W, 1, 1}}};
    PassCosts costs = PassCosts::uniform(10, 20, 0);
    // Rank 1: F 10-20, I 20-30, W 30-40, F 40-50, I 50-60: I of microbatch 1 arrives on rank 0 at
    // 60, after its I0 at 30-40. W0 fits in between.
    const auto made = fill_idle(base, costs, {.chunk_limit = {2, 2}});
    ASSERT_TRUE(made.has_value());
    std::string text;
    for (const Pass& pass : made->passes[0]) text += to_string(pass) + " ";
    EXPECT_EQ(text, "0F0 0F1 0I0 0W0 0I1 0W1 ");
    // Rank 1 runs F1 as soon as it is there and keeps W0 for later.
    EXPECT_LT(time_passes(*made, costs).makespan, time_passes(base, costs).makespan);
}

}  // namespace
}  // namespace vocabpipe::testing
