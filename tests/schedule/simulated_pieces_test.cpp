// SPDX-License-Identifier: Apache-2.0
// Messages that travel by four pieces, in programs small enough to derive every time by hand: rank
// 0 runs passes and sends what they make, rank 1 receives each message and runs a pass on it.
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Passes of rank 0 by microbatch, those of rank 1 10; a piece takes a latency and its 10 bytes.
class PieceCosts final : public CostModel {
public:
    std::vector<int64_t> makes_ns;
    StreamedShare makes;  ///< of rank 0's passes; those of rank 1 use all rows at their begin
    int64_t latency_ns = 0;
    int64_t ns_per_byte = 1;
    int64_t slowdown_permille = 0;  ///< of rank 0's passes
    CommunicationOrder order = CommunicationOrder::lanes;

    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override {
        return rank == 0 ? makes_ns.at(pass.microbatch) : 10;
    }
    [[nodiscard]] int64_t transfer_ns(Do, const Group&, int64_t bytes) const override {
        return latency_ns + bytes * ns_per_byte;
    }
    [[nodiscard]] int64_t local_ns(Do, int64_t) const override { return 0; }
    [[nodiscard]] StreamedShare streamed_share(int rank, const Pass&) const override {
        return rank == 0 ? makes : StreamedShare{};
    }
    [[nodiscard]] int64_t overlap_slowdown_permille(int rank, const Pass&) const override {
        return rank == 0 ? slowdown_permille : 0;
    }
    [[nodiscard]] CommunicationOrder communication_order() const override { return order; }
};

struct MessageByPieces {
    uint32_t made_by = 0;  ///< pass of rank 0
    Lane lane = Lane::forward;
    bool while_made = false;  ///< false: all rows are there before the first is sent
    bool while_used = true;   ///< false: all are there before the pass of rank 1 begins
    uint8_t pieces = 4;
};

void add_action(Program& program, Do what, Lane lane, uint32_t item, uint32_t order,
                uint8_t pieces = 1) {
    Action action;
    action.what = what;
    action.lane = lane;
    action.item = item;
    action.order = order;
    action.operand_count = 1;
    action.pieces = pieces;
    program.actions.push_back(action);
}

void add_edge(Program& program, uint32_t before, uint32_t after, bool streamed) {
    if (streamed) program.streamed.push_back(static_cast<uint32_t>(program.edges.size()));
    program.edges.push_back({before, after});
}

/// Rank 0's actions: `passes` passes, then the messages. Rank 1's: the messages, then their passes.
std::vector<Program> programs_of(uint32_t passes, const std::vector<MessageByPieces>& messages) {
    std::vector<Program> programs(2);
    for (size_t rank = 0; rank < 2; ++rank) {
        Program& program = programs[rank];
        program.rank = static_cast<int>(rank);
        program.ranks = 2;
        program.microbatches = 1;
        program.groups = {{{0, 1}, -1}};
        program.operands = {0};
        Buffer buffer;
        buffer.bytes = 40;
        program.buffers = {buffer};
    }
    Program& sends = programs[0];
    Program& receives = programs[1];
    const auto count = static_cast<uint32_t>(messages.size());
    for (uint32_t j = 0; j < passes; ++j) {
        sends.passes.push_back({.op = Op::F, .stage = 0, .microbatch = j});
        add_action(sends, Do::pass, Lane::compute, j, j);
    }
    for (uint32_t k = 0; k < count; ++k) {
        add_action(sends, Do::send, messages[k].lane, k, passes + k, messages[k].pieces);
        add_edge(sends, messages[k].made_by, passes + k, messages[k].while_made);
        add_action(receives, Do::receive, messages[k].lane, k, passes + k, messages[k].pieces);
    }
    for (uint32_t k = 0; k < count; ++k) {
        receives.passes.push_back({.op = Op::F, .stage = 1, .microbatch = k});
        add_action(receives, Do::pass, Lane::compute, k, passes + count + k);
        add_edge(receives, k, count + k, messages[k].while_used);
    }
    for (Program& program : programs) {
        program.buffers[0].dies = static_cast<uint32_t>(program.actions.size() - 1);
    }
    return programs;
}

using Times = std::pair<int64_t, int64_t>;

/// Begin and end of every action, by rank.
std::vector<std::vector<Times>> times_of(const Timeline& timeline) {
    std::vector<std::vector<Times>> times(2);
    for (const Span& span : timeline.spans) {
        times[span.rank].emplace_back(span.begin_ns, span.end_ns);
    }
    return times;
}
std::vector<std::vector<Times>> times_of(const std::vector<Program>& programs,
                                         const CostModel& costs) {
    return times_of(simulate(programs, costs).timeline);
}

// All rows are there at 10, so the pieces leave at 10, 20, 30, 40 and arrive 5 + 10 later each.
TEST(PiecesOfAMessage, FollowEachOtherOnTheLinkWithoutTheLatency) {
    PieceCosts costs;
    costs.makes_ns = {10};
    costs.latency_ns = 5;
    const std::vector<Program> programs = programs_of(1, {{.made_by = 0}});
    const Timeline timeline = simulate(programs, costs).timeline;
    const auto times = times_of(timeline);
    EXPECT_EQ(times[0], (std::vector<Times>{{0, 10}, {10, 10 + 40 + 5}}));
    // The pass begins with the first piece and goes on with the last.
    EXPECT_EQ(times[1], (std::vector<Times>{{10, 55}, {10 + 5 + 10, 55 + 10}}));
    ASSERT_EQ(timeline.piece_waits.size(), 3U);
    for (int k = 0; k < 3; ++k) {
        const PieceWait& wait = timeline.piece_waits[static_cast<size_t>(k)];
        EXPECT_EQ(wait.rank, 1);
        EXPECT_EQ(wait.pass, 1U);
        EXPECT_EQ(wait.source, 0U);
        EXPECT_EQ(wait.piece, k + 2);
        EXPECT_EQ(wait.begin_ns, 25 + 10 * k);
        EXPECT_EQ(wait.end_ns, 35 + 10 * k);
    }
}

// They are made at 70, 80, 90 and 100.
TEST(PiecesOfAMessage, LeaveWhenTheyHaveBeenMadeAndTheLinkIsFree) {
    PieceCosts costs;
    costs.makes_ns = {100};
    costs.makes.output_begin = 600;
    costs.latency_ns = 5;
    const std::vector<Program> programs = programs_of(1, {{.made_by = 0, .while_made = true}});
    for (const Span& span : simulate(programs, costs).timeline.spans) {
        if (span.lane == Lane::compute) continue;
        EXPECT_EQ(span.ready_ns, span.rank == 0 ? 70 : 0) << "a receive is posted at once";
    }
    // As fast as they are made: the last one leaves at 100.
    EXPECT_EQ(times_of(programs, costs),
              (std::vector<std::vector<Times>>{{{0, 100}, {70, 100 + 15}},
                                               {{70, 115}, {70 + 15, 115 + 10}}}));
    // Slower: they leave at 70, 90, 110, 130, and take 20 and the latency.
    costs.ns_per_byte = 2;
    EXPECT_EQ(times_of(programs, costs),
              (std::vector<std::vector<Times>>{{{0, 100}, {70, 130 + 25}},
                                               {{70, 155}, {70 + 25, 155 + 10}}}));
}

// Both are made at 10 and take 4 x 10; they have different lanes.
TEST(PiecesOfAMessage, LetTheNextLaunchBeginWithTheLastOfThem) {
    PieceCosts costs;
    costs.makes_ns = {10};
    const std::vector<Program> programs = programs_of(
        1, {{.made_by = 0, .lane = Lane::forward}, {.made_by = 0, .lane = Lane::backward}});
    const auto second = [&](CommunicationOrder order) {
        costs.order = order;
        return times_of(programs, costs)[0][2];
    };
    EXPECT_EQ(second(CommunicationOrder::lanes), Times(10, 50));
    EXPECT_EQ(second(CommunicationOrder::streams), Times(10, 50));
    EXPECT_EQ(second(CommunicationOrder::launches), Times(10 + 30, 10 + 30 + 40));
    EXPECT_EQ(second(CommunicationOrder::serial), Times(50, 90)) << "whole messages";
}

// The second message's pass ends at 10. The first one's pieces are made at 80, 90, 100 and 110.
TEST(PiecesOfAMessage, HoldUpTheNextLaunchUntilTheLastOneLeaves) {
    PieceCosts costs;
    costs.makes_ns = {10, 100};
    costs.makes.output_begin = 600;
    costs.order = CommunicationOrder::launches;
    const std::vector<Program> programs =
        programs_of(2, {{.made_by = 1, .lane = Lane::forward, .while_made = true},
                        {.made_by = 0, .lane = Lane::backward}});
    for (const auto& [ns_per_byte, last] :
         {std::pair<int64_t, int64_t>{1, 110}, {2, 80 + 3 * 20}}) {
        costs.ns_per_byte = ns_per_byte;
        const auto times = times_of(programs, costs);
        const int64_t piece = 10 * ns_per_byte;
        EXPECT_EQ(times[0][2], Times(80, last + piece));
        EXPECT_EQ(times[0][3], Times(last, last + 4 * piece));
    }
}

// One lane of messages: the next one begins when all pieces have been given, or have arrived.
TEST(PiecesOfAMessage, HoldTheirLaneUntilTheyHaveBeenGivenOrOnStreamsUntilTheyHaveArrived) {
    PieceCosts costs;
    costs.makes_ns = {10, 100};
    costs.makes.output_begin = 600;
    costs.ns_per_byte = 2;
    const std::vector<Program> programs =
        programs_of(2, {{.made_by = 1, .while_made = true}, {.made_by = 0}});
    costs.order = CommunicationOrder::lanes;
    EXPECT_EQ(times_of(programs, costs)[0][3], Times(110, 110 + 80));
    costs.order = CommunicationOrder::streams;
    EXPECT_EQ(times_of(programs, costs)[0][3], Times(160, 160 + 80));
}

// The message is under way from 10 to 50. The second pass needs 100 alone and half as much again
// beside it: 40 ns bring it 40 / 1.5 = 26.67 on, and 73.33 are left.
TEST(PiecesOfAMessage, SlowPassesDownFromTheFirstBeginToTheLastEnd) {
    PieceCosts costs;
    costs.makes_ns = {10, 100};
    costs.slowdown_permille = 500;
    const std::vector<Program> programs = programs_of(2, {{.made_by = 0}});
    auto times = times_of(programs, costs);
    EXPECT_EQ(times[0][2], Times(10, 50));
    EXPECT_EQ(times[0][1], Times(10, 50 + 74));
    costs.makes_ns = {10, 20};  // ends before the message
    times = times_of(programs, costs);
    EXPECT_EQ(times[0][1], Times(10, 10 + 30));
}

TEST(PiecesOfAMessage, SlowNothingDownIfTheyTakeNoTime) {
    PieceCosts costs;
    costs.makes_ns = {10, 100};
    costs.slowdown_permille = 500;
    costs.ns_per_byte = 0;
    for (const bool while_used : {true, false}) {
        const std::vector<Program> programs =
            programs_of(2, {{.made_by = 0, .while_used = while_used}});
        EXPECT_EQ(times_of(programs, costs)[0][1], Times(10, 110)) << while_used;
    }
}

// All edges are usual ones, so the message is simulated as a whole, from 10 to 50.
TEST(PiecesOfAMessage, LetTheNextLaunchBeginWithTheirEndWhereTheyTravelAsOne) {
    PieceCosts costs;
    costs.makes_ns = {10};
    costs.order = CommunicationOrder::launches;
    const std::vector<Program> programs =
        programs_of(1, {{.made_by = 0, .lane = Lane::forward, .while_used = false},
                        {.made_by = 0, .lane = Lane::backward}});
    EXPECT_EQ(times_of(programs, costs)[0][2], Times(50, 90));
}

// The first message is made from 170 to 200, the second one already from 70 to 100.
TEST(PiecesOfAMessage, KeepTheOrderOfMessagesWhereALaterOneIsMadeFirst) {
    PieceCosts costs;
    costs.makes_ns = {100, 100};
    costs.makes.output_begin = 600;
    const std::vector<Program> one_lane = programs_of(
        2,
        {{.made_by = 1, .while_made = true}, {.made_by = 0, .while_made = true}, {.made_by = 0}});
    const auto by_lane = times_of(one_lane, costs)[0];
    EXPECT_EQ(by_lane[2], Times(170, 210));
    EXPECT_EQ(by_lane[3], Times(200, 240));
    EXPECT_EQ(by_lane[4], Times(200, 240));
    // Whole ones, which are made at the end of their passes.
    costs.order = CommunicationOrder::launches;
    const std::vector<Program> launched =
        programs_of(2, {{.made_by = 1, .lane = Lane::forward, .while_made = true, .pieces = 1},
                        {.made_by = 0, .lane = Lane::backward, .while_made = true, .pieces = 1},
                        {.made_by = 0, .lane = Lane::collective, .pieces = 1}});
    const auto by_launch = times_of(launched, costs)[0];
    for (size_t k = 2; k < 5; ++k) EXPECT_EQ(by_launch[k], Times(200, 240)) << k;
}

/// A pass takes 100 or, of microbatch 1, 200, and has made its rows at 60 of 100.
class SumCosts final : public CostModel {
public:
    [[nodiscard]] int64_t pass_ns(int, const Pass& pass) const override {
        return pass.microbatch == 1 ? 200 : 100;
    }
    [[nodiscard]] int64_t transfer_ns(Do, const Group&, int64_t) const override { return 40; }
    [[nodiscard]] int64_t local_ns(Do, int64_t) const override { return 0; }
    [[nodiscard]] StreamedShare streamed_share(int, const Pass&) const override {
        return {.output_begin = 600, .output_end = 600};
    }
};

// Two ranks make their halves of a sum within passes of 100 and 200, by 60 and 120; it takes 40.
TEST(RowsOfASum, AreAwaitedOfTheLastRank) {
    for (const int late : {0, 1}) {
        std::vector<Program> programs = programs_of(1, {});
        programs[1].passes = programs[0].passes;
        programs[1].actions = programs[0].actions;
        programs[1].actions[0].order = 1;
        for (Program& program : programs) {
            add_action(program, Do::all_to_all, Lane::collective, 0, 2);
            add_edge(program, 0, 1, true);
            program.passes[0].microbatch = program.rank == late ? 1 : 0;
            program.operands = {0, 0};
            program.actions[1].operand_count = 2;
            program.buffers[0].dies = 1;
        }
        SumCosts costs;
        const auto times = times_of(programs, costs);
        for (const auto& of_rank : times) EXPECT_EQ(of_rank[1], Times(120, 160)) << late;
        EXPECT_EQ(times[static_cast<size_t>(late)][0], Times(0, 200));
        EXPECT_EQ(times[static_cast<size_t>(1 - late)][0], Times(0, 100));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
