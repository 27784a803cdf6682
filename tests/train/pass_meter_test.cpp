// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/pass_meter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// F and B of stage 1, S of the shard, each for two microbatches, and a combine_softmax of 64
/// bytes.
Program some_program() {
    Program program;
    program.passes = {{Op::F, 1, 0}, {Op::F, 1, 1}, {Op::S, 0, 0}, {Op::B, 1, 0}};
    for (uint32_t i = 0; i < 4; ++i) program.actions.push_back({.what = Do::pass, .item = i});
    program.actions.push_back(
        {.what = Do::combine_softmax, .lane = Lane::local, .operand_count = 1});
    program.operands = {0};
    program.buffers = {{.bytes = 64}};
    return program;
}

Span pass(uint32_t action, int64_t begin, int64_t end) {
    return {.action = action, .begin_ns = begin, .end_ns = end, .cpu_ns = (end - begin) / 2};
}
Span combine_softmax(int64_t begin, int64_t end) {
    return {
        .action = 4, .lane = Lane::local, .begin_ns = begin, .end_ns = end, .cpu_ns = end - begin};
}

MeasuredCosts measured(const PassMeter& meter, bool cpu_time = true) {
    MeasuredCosts result;
    std::mutex mutex;
    World::threads(1).run([&](Communicator& communicator) {
        const std::lock_guard lock(mutex);
        result = meter.gather(communicator, {communicator.size(), 1}, 2, cpu_time);
    });
    return result;
}

int64_t cost(const TableCosts::OpCosts& costs, Op op) {
    return costs[static_cast<size_t>(op)];
}

TEST(PassMeter, TakesTheFirstStepIfThereIsNoOther) {
    PassMeter meter;
    meter.add_step({{pass(0, 0, 900'000)}}, some_program(), 1'000'000);
    const MeasuredCosts costs = measured(meter);
    EXPECT_EQ(cost(costs.wall.stage_ns[1], Op::F), 900'000);
    EXPECT_EQ(costs.median_step_ns, 1'000'000);
}

TEST(PassMeter, TakesMeansWithinAStepAndMediansOverStepsWithoutTheFirst) {
    PassMeter meter;
    const Program program = some_program();
    meter.add_step({{pass(0, 0, 900'000)}}, program, 1'000'000);  // kernels are compiled
    for (const int64_t extra : {0, 1000, 10}) {
        meter.add_step({{pass(0, 100, 200 + extra), pass(1, 2000, 2300 + extra)}}, program,
                       3000 + extra);
    }
    const MeasuredCosts costs = measured(meter);
    EXPECT_EQ(cost(costs.wall.stage_ns[1], Op::F), 210);
    EXPECT_EQ(cost(costs.cpu.stage_ns[1], Op::F), 105);
    EXPECT_EQ(cost(costs.wall.stage_ns[0], Op::F), 0) << "no rank ran it";
    EXPECT_EQ(costs.median_step_ns, 3010);
    // The program ran from 100 to 2300 (+ extra).
    EXPECT_EQ(costs.wall.fixed_ns, 800);
    EXPECT_EQ(costs.cpu.fixed_ns, 0);
}

TEST(PassMeter, LeavesOutCombinesInTheMidstOfAPass) {
    PassMeter meter;
    const Program program = some_program();
    for (int step = 0; step < 2; ++step) {
        meter.add_step({{pass(2, 0, 1000), combine_softmax(300, 400), combine_softmax(500, 550),
                         combine_softmax(1100, 1110)}},
                       program, 2000);
    }
    const MeasuredCosts costs = measured(meter);
    EXPECT_EQ(cost(costs.wall.rank_ns[0], Op::S), 850);
    EXPECT_DOUBLE_EQ(costs.wall.local_bytes_per_ns, 3 * 64 / 160.0);
}

TEST(PassMeter, LeavesOutWaitsForRowsAndWhatRanMeanwhile) {
    PassMeter meter;
    const Program program = some_program();
    Timeline step{
        .spans = {pass(2, 0, 1000), combine_softmax(300, 400), combine_softmax(550, 600)},
        .piece_waits = {{.begin_ns = 250, .end_ns = 500}, {.begin_ns = 700, .end_ns = 750}}};
    for (int i = 0; i < 2; ++i) meter.add_step(step, program, 2000);
    EXPECT_EQ(cost(measured(meter).wall.rank_ns[0], Op::S), 1000 - 250 - 50 - 50);
    const std::vector<Program> programs{program};
    EXPECT_EQ(ReplayCosts(step, programs, {}).pass_ns(0, program.passes[2]), 650);
}

// The two take 300 us together, of which a combine_softmax has 30; their CPU times are 60 and 120.
TEST(PassMeter, DividesTheTimeOfAPairByCpuTime) {
    Program program = some_program();
    program.actions[1].pair_member = 1;
    program.actions[3].pair_member = 2;
    Span first = pass(1, 100'000, 350'000);
    Span second = pass(3, 150'000, 400'000);
    first.cpu_ns = 60'000;
    second.cpu_ns = 120'000;
    PassMeter meter;
    meter.add_step({{pass(0, 0, 90'000), first, second, combine_softmax(200'000, 230'000)}},
                   program, 1'000'000);
    const MeasuredCosts costs = measured(meter);
    EXPECT_EQ(cost(costs.wall.stage_ns[1], Op::F), (90'000 + 90'000) / 2);
    EXPECT_EQ(cost(costs.wall.stage_ns[1], Op::B), 180'000);
}

TEST(PassMeter, WithSeveralThreadsPerRankTakesDurationsForCpuTime) {
    PassMeter meter;
    for (int step = 0; step < 2; ++step) {
        meter.add_step({{pass(3, 0, 1000)}}, some_program(), 2000);
    }
    EXPECT_EQ(cost(measured(meter, true).cpu.stage_ns[1], Op::B), 500);
    EXPECT_EQ(cost(measured(meter, false).cpu.stage_ns[1], Op::B), 1000);
}

TEST(PassMeter, ForgetsWhatIsLongAgo) {
    PassMeter meter;
    const Program program = some_program();
    for (int step = 0; step < 100; ++step) meter.add_step({{pass(0, 0, 1000)}}, program, 1500);
    for (int step = 0; step < 64; ++step) meter.add_step({{pass(0, 0, 10)}}, program, 15);
    const MeasuredCosts costs = measured(meter);
    EXPECT_EQ(cost(costs.wall.stage_ns[1], Op::F), 10);
    EXPECT_EQ(costs.median_step_ns, 15);
}

TEST(PassMeter, GathersTheCostsOfAllRanksOnEveryRank) {
    World::threads(2).run([](Communicator& communicator) {
        PassMeter meter;
        const bool first = communicator.rank() == 0;
        Program program = some_program();
        if (first) program.passes[0].stage = 0;
        for (int step = 0; step < 2; ++step) {
            meter.add_step({{pass(0, 0, first ? 100 : 200), pass(2, 300, first ? 330 : 340)}},
                           program, first ? 400 : 500);
        }
        const MeasuredCosts costs = meter.gather(communicator, {communicator.size(), 1}, 2, true);
        EXPECT_EQ(cost(costs.wall.stage_ns[0], Op::F), 100);
        EXPECT_EQ(cost(costs.wall.stage_ns[1], Op::F), 200);
        EXPECT_EQ(cost(costs.wall.rank_ns[0], Op::S), 30);
        EXPECT_EQ(cost(costs.wall.rank_ns[1], Op::S), 40);
        EXPECT_EQ(costs.median_step_ns, 400) << "of rank 0";
        EXPECT_EQ(costs.wall.fixed_ns, 160) << "of the slowest rank";
    });
}

TEST(DeriveMissing, TakesHalvesOfWholeBackwardsAndTheSumOfHalves) {
    TableCosts whole = TableCosts::uniform(1, 1, 100, 0, 0);
    whole.stage_ns[0][static_cast<size_t>(Op::B)] = 201;
    EXPECT_THAT(derive_missing(whole, {true}), ElementsAre(Op::I, Op::W));
    EXPECT_EQ(cost(whole.stage_ns[0], Op::I), 100);
    EXPECT_EQ(cost(whole.stage_ns[0], Op::W), 101);

    TableCosts split = TableCosts::uniform(1, 1, 100, 200, 0);
    split.stage_ns[0][static_cast<size_t>(Op::B)] = 0;
    EXPECT_THAT(derive_missing(split, {true}), ElementsAre(Op::B));
    EXPECT_EQ(cost(split.stage_ns[0], Op::B), 200);

    TableCosts all = TableCosts::uniform(1, 1, 0, 200, 0);
    EXPECT_THAT(derive_missing(all, {true}), IsEmpty());
    EXPECT_EQ(cost(all.stage_ns[0], Op::F), 1) << "costs of 0 would let orders run away";
}

TEST(DeriveMissing, GivesTheInputGradientOfAFrozenStageAllOfItsBackward) {
    TableCosts costs = TableCosts::uniform(1, 3, 100, 0, 0);
    for (const size_t stage : {1U, 2U}) costs.stage_ns[stage][static_cast<size_t>(Op::B)] = 80;
    // Nothing below the first stage is trained, so that it has no backward.
    EXPECT_THAT(derive_missing(costs, {false, false, true}), ElementsAre(Op::I, Op::W));
    EXPECT_EQ(cost(costs.stage_ns[0], Op::I), 1);
    EXPECT_EQ(cost(costs.stage_ns[1], Op::I), 80);
    EXPECT_EQ(cost(costs.stage_ns[1], Op::W), 1);
    EXPECT_EQ(cost(costs.stage_ns[2], Op::I), 40);
    EXPECT_EQ(cost(costs.stage_ns[2], Op::W), 40);
}

}  // namespace
}  // namespace vocabpipe
