// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/microbatch_order.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Lengths of a half, a quarter, ... of the longest, of a model whose attention takes `attention`
/// of a pass with the longest.
std::vector<LengthShares> halves(int count, double attention) {
    std::vector<LengthShares> shares;
    double tokens = 1;
    for (int i = 0; i < count; ++i) {
        tokens /= 2;
        const double layers = tokens * (1 - attention + attention * tokens);
        shares.push_back(LengthShares::of(layers, tokens, layers));
    }
    return shares;
}

int64_t makespan(const Schedule& schedule, PassCosts costs, const std::vector<int>& lengths) {
    costs.lengths.of_microbatch = lengths;
    return time_passes(schedule, costs).makespan;
}

TEST(MicrobatchOrder, IsNeverSlowerThanTheOrderOfSamples) {
    constexpr std::array kFamilies{"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "v-half"};
    std::mt19937 random(7);
    int shorter = 0;
    for (int round = 0; round < 1000; ++round) {
        const int ranks = std::array{2, 4, 8}[random() % 3];
        const std::string family = kFamilies[random() % kFamilies.size()];
        const int microbatches = ranks * static_cast<int>(1 + random() % 2);
        PassCosts costs = PassCosts::uniform(12000, 24000, 2000 * static_cast<int>(random() % 3));
        costs.hop = static_cast<int>(random() % 1000);
        costs.lengths.shorter = halves(1 + static_cast<int>(random() % 4), 0.3);
        const Schedule schedule = make_schedule(
            family, {.ranks = ranks,
                     .microbatches = microbatches,
                     .vocab_mode = random() % 2 == 0 ? VocabMode::none : VocabMode::one_barrier,
                     .vocab_size = 1000,
                     .costs = costs});
        std::vector<int> of_samples;
        for (int j = 0; j < microbatches; ++j) {
            of_samples.push_back(static_cast<int>(random() % (costs.lengths.shorter.size() + 1)));
        }
        const std::vector<int> order = order_microbatches(schedule, costs, of_samples);
        ASSERT_TRUE(std::ranges::is_permutation(order, of_samples));
        const int64_t after = makespan(schedule, costs, order);
        const int64_t before = makespan(schedule, costs, of_samples);
        ASSERT_LE(after, before) << family << " on " << ranks << " ranks, round " << round;
        shorter += after < before ? 1 : 0;
    }
    EXPECT_GT(shorter, 700);
}

TEST(MicrobatchOrder, DependsOnTheMultisetAlone) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 4, .microbatches = 8, .vocab_size = 100});
    PassCosts costs = PassCosts::uniform(1200, 2400, 0);
    costs.lengths.shorter = halves(3, 0.5);
    std::vector<int> lengths{0, 3, 1, 1, 2, 0, 3, 3};
    const std::vector<int> order = order_microbatches(schedule, costs, lengths);
    std::mt19937 random(3);
    for (int i = 0; i < 20; ++i) {
        std::ranges::shuffle(lengths, random);
        costs.lengths.of_microbatch = lengths;  // not read
        EXPECT_EQ(order_microbatches(schedule, costs, lengths), order);
    }
}

/// All orders of a small step, and programs in place of lists of passes.
TEST(MicrobatchOrder, IsNearTheBestOfAllOrdersInTheSimulator) {
    for (const char* family : {"1f1b", "zb-h1"}) {
        const Schedule schedule =
            make_schedule(family, {.ranks = 4, .microbatches = 6, .vocab_size = 100});
        TableCosts table = TableCosts::uniform(4, 4, 12000, 24000, 0);
        table.lengths.shorter = halves(3, 0.3);
        StepSizes sizes{.tokens = 8, .hidden = 4};
        sizes.stages.resize(4);
        sizes.shards.resize(4);
        const PassCosts costs = PassCosts::of(table, sizes, schedule);
        const auto simulated = [&](const std::vector<int>& lengths) {
            table.lengths.of_microbatch = lengths;
            return simulate(lower(schedule, sizes, table), table).summary.makespan_ns;
        };
        std::vector<int> lengths{0, 0, 1, 2, 3, 3};
        const int64_t chosen = simulated(order_microbatches(schedule, costs, lengths));
        int64_t best = chosen, worst = chosen;
        do {
            const int64_t ns = simulated(lengths);
            best = std::min(best, ns);
            worst = std::max(worst, ns);
        } while (std::ranges::next_permutation(lengths).found);
        EXPECT_LE(static_cast<double>(chosen), 1.01 * static_cast<double>(best)) << family;
        EXPECT_GT(static_cast<double>(worst), 1.02 * static_cast<double>(best)) << family;
    }
}

TEST(MicrobatchOrder, NeedsALengthForEveryMicrobatch) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 2, .microbatches = 4, .vocab_size = 100});
    EXPECT_THROW(order_microbatches(schedule, PassCosts(), {0, 0, 0}), UsageError);
}

TEST(MicrobatchLengths, ScalePassesAndTransfersOfShorterOnes) {
    MicrobatchLengths lengths{.shorter = {LengthShares::of(0.25, 0.5, 0.125)},
                              .of_microbatch = {0, 1}};
    EXPECT_EQ(lengths.pass_time(1000, {.op = Op::F, .microbatch = 0}), 1000);
    EXPECT_EQ(lengths.pass_time(1000, {.op = Op::F, .microbatch = 1}), 250);
    EXPECT_EQ(lengths.pass_time(1000, {.op = Op::S, .microbatch = 1}), 500);
    EXPECT_EQ(lengths.pass_time(1000, {.op = Op::R, .microbatch = 1}), 125);
    EXPECT_EQ(lengths.pass_time(1000, {.op = Op::Update, .microbatch = 1}), 1000);
    EXPECT_EQ(lengths.pass_time(1000, {.op = Op::F, .microbatch = 2}), 1000);
    EXPECT_EQ(lengths.pass_time(1, {.op = Op::F, .microbatch = 1}), 1);  // schedules need time
    EXPECT_EQ(lengths.pass_time(0, {.op = Op::S, .microbatch = 1}), 0);
    EXPECT_EQ(lengths.transfer_time(1000, 1), 500);
    EXPECT_EQ(lengths.transfer_time(1000, 0), 1000);
}

TEST(PassCosts, AreThoseOfTheLongestMicrobatchWhateverTheFirstOneHas) {
    TableCosts table = TableCosts::uniform(2, 2, 12000, 24000, 4000);
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 2, .microbatches = 4, .vocab_size = 100});
    const StepSizes sizes{.tokens = 8, .hidden = 4};
    const PassCosts longest = PassCosts::of(table, sizes, schedule);
    table.lengths = {.shorter = halves(1, 0), .of_microbatch = {1, 0, 1, 1}};
    const PassCosts costs = PassCosts::of(table, sizes, schedule);
    EXPECT_EQ(costs.stage, longest.stage);
    EXPECT_EQ(costs(0, {.op = Op::F, .microbatch = 0}), 6000);
    EXPECT_EQ(costs(0, {.op = Op::F, .microbatch = 1}), 12000);
}

}  // namespace
}  // namespace vocabpipe::testing
