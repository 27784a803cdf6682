// SPDX-License-Identifier: Apache-2.0
// Simulated steps in which boundaries travel by pieces.
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/explain.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/step_pieces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kStreamTokens = 512;
constexpr int64_t kStreamHidden = 16;
constexpr int64_t kStreamForward = 96'000;

StepSizes sizes_of_streams(const Schedule& schedule) {
    StepSizes sizes{.tokens = kStreamTokens, .hidden = kStreamHidden};
    sizes.stages.resize(static_cast<size_t>(schedule.stages), {.saved = 64});
    sizes.shards.resize(static_cast<size_t>(schedule.ranks), {.exp_logits = 64});
    return sizes;
}

/// A hop takes `hop` forwards, of stages of four layers.
TableCosts costs_of_streams(const Schedule& schedule, double hop, int64_t vocabulary_pass) {
    TableCosts costs = TableCosts::uniform(schedule.ranks, schedule.stages, kStreamForward,
                                           2 * kStreamForward, vocabulary_pass);
    if (hop > 0) {
        costs.bytes_per_ns =
            static_cast<double>(kStreamTokens * kStreamHidden * 4) / (hop * kStreamForward);
    }
    costs.layers_per_stage = 4;
    return costs;
}

int64_t simulated_ns(const Schedule& schedule, const TableCosts& costs, int pieces) {
    return simulate(lower(schedule, sizes_of_streams(schedule), costs, {.pieces = pieces}), costs)
        .summary.makespan_ns;
}

// --- one hop, computed by hand -------------------------------------------------------------------

TEST(StreamedHop, TakesAPieceOfTheLinkMoreThanTheLongerOfBothProducts) {
    // Two stages, one microbatch, forward only: F0, the hop, F1.
    ScheduleOptions options{.ranks = 2, .microbatches = 1, .vocab_size = 64};
    options.forward_only = true;
    const Schedule schedule = make_schedule("1f1b", options);
    for (const double hop : {0.05, 0.5}) {
        const TableCosts costs = costs_of_streams(schedule, hop, 0);
        const auto link = static_cast<int64_t>(hop * kStreamForward);
        // F0 ends with an MLP, a sixth of it; F1 begins with a product of a sixteenth.
        const int64_t last = kStreamForward * 166 / 1000;
        const int64_t first = kStreamForward * 62 / 1000;
        for (const int pieces : {2, 4, 8}) {
            // Piece k is made at F - last + k last / K, and leaves when the one before has left.
            int64_t free = 0;
            int64_t compute = 0;  // when F1 is done with what it can do with the pieces so far
            for (int k = 1; k <= pieces; ++k) {
                const int64_t made = kStreamForward - last + last * k / pieces;
                free = std::max(free, made) + link / pieces;
                compute = std::max(compute, free) + first / pieces;
            }
            const int64_t expected = compute + kStreamForward - first;
            EXPECT_NEAR(static_cast<double>(simulated_ns(schedule, costs, pieces)),
                        static_cast<double>(expected), 0.002 * static_cast<double>(expected))
                << hop << " " << pieces;
        }
        EXPECT_EQ(simulated_ns(schedule, costs, 1), 2 * kStreamForward + link);
    }
}

TEST(StreamedHop, ShortensPlain1F1BWithSlowHops) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 8, .microbatches = 24, .vocab_size = 64});
    const TableCosts costs = costs_of_streams(schedule, 0.2, 0);
    const auto plain = static_cast<double>(simulated_ns(schedule, costs, 1));
    const auto streamed = static_cast<double>(simulated_ns(schedule, costs, 16));
    RecordProperty("streamed_permille", static_cast<int>(1000 * streamed / plain));
    EXPECT_LE(streamed, 0.885 * plain);
}

/// Lanes are streams, and launches keep one order: pieces are there at most a piece later.
TEST(StreamedHop, ShortensPlain1F1BOnDevicesWithStreams) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 8, .microbatches = 24, .vocab_size = 64});
    TableCosts costs = costs_of_streams(schedule, 0.2, 0);
    for (const CommunicationOrder order :
         {CommunicationOrder::streams, CommunicationOrder::launches}) {
        costs.communication = order;
        const auto plain = static_cast<double>(simulated_ns(schedule, costs, 1));
        const auto streamed = static_cast<double>(simulated_ns(schedule, costs, 8));
        RecordProperty(std::string(to_string(order)), static_cast<int>(1000 * streamed / plain));
        EXPECT_LE(streamed, 0.93 * plain) << to_string(order);
    }
}

TEST(StreamedBroadcast, IsHiddenByS) {
    // One microbatch, so nothing else hides the broadcast, which takes half of S.
    ScheduleOptions options{
        .ranks = 2, .microbatches = 1, .vocab_mode = VocabMode::two_barriers, .vocab_size = 64};
    options.forward_only = true;
    const Schedule schedule = make_schedule("1f1b", options);
    TableCosts costs = costs_of_streams(schedule, 0.5, kStreamForward);
    costs.stage_ns.assign(costs.stage_ns.size(), {});
    costs.rank_ns.assign(costs.rank_ns.size(), {});
    for (auto& row : costs.rank_ns) row[static_cast<size_t>(Op::S)] = kStreamForward;
    for (auto& row : costs.rank_ns) row[static_cast<size_t>(Op::T)] = 2 * kStreamForward;
    const auto plain = static_cast<double>(simulated_ns(schedule, costs, 1));
    const auto streamed = static_cast<double>(simulated_ns(schedule, costs, 8));
    // Two hops of half of S each: the second one is the broadcast.
    EXPECT_NEAR(plain - streamed, 0.5 * kStreamForward * (7.0 / 8), 0.02 * kStreamForward);
}

// Neither memory nor lanes hold the sum up until the weight gradients are made.
TEST(StreamedSum, BeginsBesideTheLastT) {
    for (const char* family : {"1f1b", "zb-h1", "v-half", "zb-v"}) {
        const Schedule schedule = make_schedule(family, {.ranks = 4,
                                                         .microbatches = 12,
                                                         .vocab_mode = VocabMode::two_barriers,
                                                         .vocab_size = 64});
        const TableCosts costs = costs_of_streams(schedule, 0.2, kStreamForward / 2);
        const std::vector<Program> programs =
            lower(schedule, sizes_of_streams(schedule), costs, {.pieces = 4});
        std::vector<int64_t> last_t(12, 0);
        std::vector<int64_t> begun(12, 0);
        for (const Span& span : simulate(programs, costs).timeline.spans) {
            const Program& program = programs[span.rank];
            const Action& action = program.actions[span.action];
            if (action.what == Do::pass && program.passes[action.item].op == Op::T) {
                int64_t& end = last_t[program.passes[action.item].microbatch];
                end = std::max(end, span.end_ns);
            }
            if (action.what == Do::all_to_all && action.reduction == kOutputReduction) {
                begun[action.item] = span.begin_ns;
            }
        }
        int beside = 0;
        for (size_t j = 0; j < last_t.size(); ++j) beside += begun[j] < last_t[j] ? 1 : 0;
        EXPECT_EQ(beside, 12) << family;
    }
}

TEST(StreamedHop, IsExplainedByThePieceThatThePassWaitedFor) {
    ScheduleOptions options{.ranks = 2, .microbatches = 1, .vocab_size = 64};
    options.forward_only = true;
    const Schedule schedule = make_schedule("1f1b", options);
    const TableCosts costs = costs_of_streams(schedule, 0.5, 0);
    const std::vector<Program> programs =
        lower(schedule, sizes_of_streams(schedule), costs, {.pieces = 4});
    const Simulation run = simulate(programs, costs);
    const CriticalPath path = critical_path(run.timeline, programs);
    int64_t transfer = 0;
    for (const PathShare& share : path.shares) {
        if (share.cause == Cause::transfer) transfer += share.ns;
        EXPECT_NE(share.cause, Cause::memory);
        EXPECT_NE(share.cause, Cause::overhead);
    }
    // Four pieces of an eighth of F; what F1 does between them takes less.
    const int64_t compute = path.total_ns - transfer;
    EXPECT_GT(transfer, kStreamForward * 3 / 10);
    EXPECT_LT(compute, 2 * kStreamForward);
    ASSERT_FALSE(run.timeline.piece_waits.empty());
    const PieceWait& wait = run.timeline.piece_waits.back();
    EXPECT_EQ(wait.piece, 4);
    // In the midst of that wait.
    const int64_t at = (wait.begin_ns + wait.end_ns) / 2;
    EXPECT_THAT(to_text(explain(run.timeline, programs, 1, at)),
                ::testing::HasSubstr("waits 10.5 us for rows 384-511 of rank 0"));
}

// --- how many pieces -----------------------------------------------------------------------------

Schedule schedule_with_hops() {
    return make_schedule("1f1b", {.ranks = 4, .microbatches = 8, .vocab_size = 64});
}

TEST(ChosenPieces, AreOneWhereMessagesAreFast) {
    const Schedule schedule = schedule_with_hops();
    const StepSizes sizes = sizes_of_streams(schedule);
    for (const double hop : {0.0, 0.001, 0.01}) {
        const TableCosts costs = costs_of_streams(schedule, hop, 0);
        EXPECT_EQ(choose_step_pieces(schedule, sizes, costs), 1) << hop;
        // And the programs are those of before.
        EXPECT_EQ(lower_step(schedule, sizes, costs, {.pieces = 0}).lowered.pipeline[0].hash,
                  lower_world(schedule, sizes, costs).pipeline[0].hash);
    }
}

TEST(ChosenPieces, AreThoseOfTheShortestStepButForAHundredth) {
    const Schedule schedule = schedule_with_hops();
    const StepSizes sizes = sizes_of_streams(schedule);
    for (const int64_t price : {0, 500, 5'000, 50'000}) {
        TableCosts costs = costs_of_streams(schedule, 0.3, 0);
        costs.piece_ns = price;
        const int chosen = choose_step_pieces(schedule, sizes, costs);
        const auto ns = static_cast<double>(simulated_ns(schedule, costs, chosen));
        for (const int pieces : {1, 2, 4, 8, 16}) {
            // Each of four steps to more pieces may leave a hundredth.
            EXPECT_LE(0.96 * ns, static_cast<double>(simulated_ns(schedule, costs, pieces)))
                << price << " " << pieces;
        }
        EXPECT_EQ(chosen == 1, price == 50'000) << "a piece of more than half of F";
        const EarlyReceives made = lower_step(schedule, sizes, costs, {.pieces = 0});
        EXPECT_EQ(made.pieces, chosen);
        EXPECT_EQ(made.lowered.pipeline[0].hash,
                  lower_world(schedule, sizes, costs, {.pieces = chosen}).pipeline[0].hash);
    }
}

TEST(ChosenPieces, AreOneOnOneRank) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 1, .microbatches = 2, .vocab_size = 64});
    EXPECT_EQ(choose_step_pieces(schedule, sizes_of_streams(schedule),
                                 costs_of_streams(schedule, 0.5, 0)),
              1);
}

TEST(ChosenPieces, CostWhatATableSays) {
    OverlapTable table{.members = 2, .rates = {.flops_per_ns = 50, .piece_ns = 7}};
    table.rates.link = {.bytes_per_ns = 3, .latency_ns = 11};
    EXPECT_EQ(piece_price(table), 14) << "the table's weights were halves";
    const TableCosts costs = costs_at_rates(TableCosts::uniform(2, 2, 100, 200, 0), 200, table);
    EXPECT_EQ(costs.stage_ns[0][static_cast<size_t>(Op::B)], 800);
    EXPECT_EQ(costs.piece_ns, 14);
    EXPECT_EQ(costs.latency_ns, 11);
    EXPECT_DOUBLE_EQ(costs.bytes_per_ns, 3);
}

TEST(ChosenPieces, MakePassesLonger) {
    // F0, a hop that takes no time, F1: eight pieces are seven of two products and seven of one.
    ScheduleOptions options{.ranks = 2, .microbatches = 1, .vocab_size = 64};
    options.forward_only = true;
    const Schedule schedule = make_schedule("1f1b", options);
    TableCosts costs = costs_of_streams(schedule, 0, 0);
    const int64_t free = simulated_ns(schedule, costs, 8);
    costs.piece_ns = 100;
    // The pieces of F1 follow each other while F0 still makes some; the last one counts.
    EXPECT_GE(simulated_ns(schedule, costs, 8) - free, 7 * 200);
    EXPECT_LE(simulated_ns(schedule, costs, 8) - free, 7 * 300);
    EXPECT_EQ(simulated_ns(schedule, costs, 1), 2 * kStreamForward);
}

TEST(TilePieces, AreANumberOrAuto) {
    EXPECT_EQ(tile_pieces_from("auto"), 0);
    EXPECT_EQ(tile_pieces_from("64"), 64);
    for (const char* text : {"0", "65", "-1", "", "two", "4 "}) {
        EXPECT_THROW((void)tile_pieces_from(text), UsageError) << text;
    }
}

class SimulatedStreams : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(SimulatedStreams, AreNotSlowerThanWholeMessages) {
    const ScheduleCase& c = GetParam();
    const Schedule schedule = schedule_of(c, {.microbatches = 2 * c.ranks, .vocab_size = 64});
    for (const double hop : {0.0, 0.02, 0.2}) {
        const TableCosts costs = costs_of_streams(schedule, hop, kStreamForward / 4);
        const auto plain = static_cast<double>(simulated_ns(schedule, costs, 1));
        for (const int pieces : {2, 8}) {
            EXPECT_LE(static_cast<double>(simulated_ns(schedule, costs, pieces)), plain * 1.0001)
                << hop << " " << pieces;
        }
    }
}

/// The simulator ends, whatever waits for whose rows.
TEST_P(SimulatedStreams, EndInEveryOrderOfCommunication) {
    const ScheduleCase& c = GetParam();
    const Schedule schedule = schedule_of(c, {.microbatches = 2 * c.ranks, .vocab_size = 64});
    TableCosts costs = costs_of_streams(schedule, 0.2, kStreamForward / 4);
    for (const CommunicationOrder order : kCommunicationOrders) {
        costs.communication = order;
        const auto plain = static_cast<double>(simulated_ns(schedule, costs, 1));
        const auto streamed = static_cast<double>(simulated_ns(schedule, costs, 4));
        EXPECT_LE(streamed, plain * 1.05) << to_string(order);
    }
}

constexpr std::array kStreamRanks{2, 4};
INSTANTIATE_TEST_SUITE_P(Matrix, SimulatedStreams,
                         ::testing::ValuesIn(every_schedule(kStreamRanks)),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace vocabpipe::testing
