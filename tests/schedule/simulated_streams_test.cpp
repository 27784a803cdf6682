// SPDX-License-Identifier: Apache-2.0
// Simulated steps in which boundaries travel by pieces.
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/explain.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"

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
    EXPECT_EQ(run.timeline.piece_waits.back().piece, 4);
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
