// SPDX-License-Identifier: Apache-2.0
// Streamed edges: boundaries that travel by pieces. Every schedule and vocabulary mode, every model
// family, every way to recompute: the bits of the single-rank oracle, whatever the pieces.
#include "tests/model/model_cases.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/random_schedule.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

namespace vocabpipe::testing {
namespace {

constexpr std::array kStreamRanks{2, 3, 4};
// 28 sequences of 6 tokens: 168 rows in at most 5 pieces, of which the last is no multiple of 16.
constexpr int64_t kStreamSequences = 28;

class Streams : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(Streams, LeaveTheBitsOfTheSingleRankOracle) {
    const ScheduleCase& c = GetParam();
    StepCase step = step_cases(c, 1).front();
    step.sequences = kStreamSequences;
    const Schedule schedule = schedule_of(c, step);
    const ModelConfig config = tiny_gpt(schedule.stages + (c.turn % 2 == 0 ? 1 : -1), step);
    const ModelPartition partition = even_partition(config, schedule, kStreamSequences);
    const Batch batch = random_batch(config, step.microbatches, kStreamSequences, 3);
    const Gradients expected = run_single_rank(config, partition, schedule, batch, 7);
    World world = World::threads(c.ranks, {.timeout_seconds = 30});
    for (const int pieces : {2, 5}) {
        EXPECT_EQ(first_difference(expected, run_pipeline(world, config, partition, schedule, batch,
                                                          7, {.pieces = pieces})),
                  "")
            << pieces << " pieces";
    }
}

INSTANTIATE_TEST_SUITE_P(Matrix, Streams, ::testing::ValuesIn(every_schedule(kStreamRanks)),
                         [](const auto& info) { return test_name(info.param); });

class StreamsOfFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(StreamsOfFamilies, LeaveTheBitsOfTheSingleRankOracle) {
    size_t turn = 0;
    for (const char* name : {"1f1b", "zb-h1", "v-half"}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            const std::array granularities{Recompute::none, Recompute::selective, Recompute::full};
            const Recompute recompute = granularities[turn++ % granularities.size()];
            Schedule schedule = make_schedule(name, {.ranks = 2,
                                                     .microbatches = 3,
                                                     .vocab_mode = VocabMode::two_barriers,
                                                     .vocab_size = 29});
            ModelConfig config = small_family(GetParam(), schedule.stages + 1, 7, 29, false);
            config.dtype = dtype;
            const Batch batch = random_batch(config, 3, 20, 3);
            ModelPartition partition = even_partition(config, schedule, 20);
            const Gradients expected = run_single_rank(config, partition, schedule, batch, 7);
            partition.recompute = recompute;
            if (recompute != Recompute::none) schedule = with_recomputation(schedule);
            World world = World::threads(2, {.timeout_seconds = 30});
            EXPECT_EQ(first_difference(expected, run_pipeline(world, config, partition, schedule,
                                                              batch, 7, {.pieces = 4})),
                      "")
                << name << " " << size_of(dtype) << " bytes, recompute "
                << static_cast<int>(recompute);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, StreamsOfFamilies, ::testing::ValuesIn(model_families()),
                         [](const auto& info) { return test_name(info.param); });

// --- lowering ------------------------------------------------------------------------------------

struct Lowering {
    Schedule schedule;
    StepSizes sizes;
    TableCosts costs;
};

Lowering lowering(const char* family, VocabMode mode, int64_t tokens) {
    const Schedule schedule = make_schedule(
        family, {.ranks = 4, .microbatches = 6, .vocab_mode = mode, .vocab_size = 64});
    const ModelConfig config = tiny_gpt(4 * schedule.stages, {.vocab_size = 64});
    StepSizes sizes = step_sizes(config, even_partition(config, schedule, 1), schedule);
    sizes.tokens = tokens;
    return {schedule, sizes, TableCosts::uniform(4, schedule.stages, 1000, 2000, 500)};
}

TEST(StreamedPrograms, AreThoseOfBeforeWithOnePiece) {
    const Lowering l = lowering("1f1b", VocabMode::two_barriers, 256);
    const Lowered plain = lower_world(l.schedule, l.sizes, l.costs, {});
    const Lowered streamed = lower_world(l.schedule, l.sizes, l.costs, {.pieces = 4});
    EXPECT_NE(plain.pipeline[0].hash, streamed.pipeline[0].hash);
    for (size_t rank = 0; rank < 4; ++rank) {
        EXPECT_TRUE(plain.pipeline[rank].streamed.empty());
        EXPECT_FALSE(streamed.pipeline[rank].streamed.empty());
        EXPECT_EQ(plain.pipeline[rank].actions.size(), streamed.pipeline[rank].actions.size());
    }
}

TEST(StreamedPrograms, StreamHopsTheBroadcastOfXAndTheSumOfTwoBarriers) {
    for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
        const Lowering l = lowering("zb-h1", mode, 256);
        const Lowered world = lower_world(l.schedule, l.sizes, l.costs, {.pieces = 4});
        EXPECT_EQ(find_deadlock(world), std::nullopt);
        int hops = 0;
        int broadcasts = 0;
        int sums = 0;
        for (const Program& program : world.pipeline) {
            for (const uint32_t index : program.streamed) {
                const Action& before = program.actions[program.edges[index].before];
                const Action& after = program.actions[program.edges[index].after];
                const Action& moves = before.what == Do::pass ? after : before;
                const Action& pass = before.what == Do::pass ? before : after;
                ASSERT_EQ(pass.what, Do::pass);
                hops += moves.what == Do::send || moves.what == Do::receive ? 1 : 0;
                broadcasts += moves.what == Do::broadcast ? 1 : 0;
                sums += moves.what == Do::all_to_all ? 1 : 0;
                EXPECT_EQ(moves.pieces, moves.what == Do::all_to_all ? 1 : 4);
            }
        }
        EXPECT_EQ(hops, 2 * 2 * 3 * 6);  // both ends, both directions, p - 1, m
        EXPECT_EQ(broadcasts, 4 * 6);    // the root's F and the others' S
        EXPECT_EQ(sums, mode == VocabMode::two_barriers ? 4 * 6 : 0);
    }
}

TEST(StreamedPrograms, HaveNoMorePiecesThanRowsAllow) {
    const Lowering l = lowering("1f1b", VocabMode::none, 70);
    const Lowered world = lower_world(l.schedule, l.sizes, l.costs, {.pieces = 8});
    for (const Program& program : world.pipeline) {
        for (const Action& action : program.actions) EXPECT_LE(action.pieces, 2);
    }
}

TEST(StreamedPrograms, RefuseImpossibleNumbersOfPieces) {
    const Lowering l = lowering("1f1b", VocabMode::none, 70);
    for (const int pieces : {0, -1, kMostPieces + 1}) {
        EXPECT_THROW((void)lower_world(l.schedule, l.sizes, l.costs, {.pieces = pieces}),
                     UsageError);
    }
}

TEST(StreamedPrograms, AreRefusedWhereTheEndsOfAMessageDisagreeOnPieces) {
    const Lowering l = lowering("1f1b", VocabMode::none, 256);
    std::vector<Program> programs = lower(l.schedule, l.sizes, l.costs, {.pieces = 4});
    const auto send = std::ranges::find(programs[0].actions, Do::send, &Action::what);
    send->pieces = 3;
    EXPECT_NE(find_deadlock(programs), std::nullopt);
}

}  // namespace
}  // namespace vocabpipe::testing
