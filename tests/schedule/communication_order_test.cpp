// SPDX-License-Identifier: Apache-2.0
// What communication of a rank waits for: on hosts, on streams, with NCCL's launch order.
#include "vocabpipe/cost_model.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/schedule/rendezvous.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace vocabpipe::testing {
namespace {

using enum CommunicationOrder;

int64_t step_ns(const std::vector<Program>& programs, TableCosts costs, CommunicationOrder order) {
    costs.communication = order;
    return simulate(programs, costs).summary.makespan_ns;
}

/// Rank 0 runs F (10) and B (100) and sends what B gives forward, then what F gives backward; rank
/// 1 receives both in this order and its F needs the second. A message takes 5.
std::vector<Program> sends_late_then_early() {
    const auto action = [](Do what, Lane lane, uint32_t item, uint32_t order) {
        Action a;
        a.what = what;
        a.lane = lane;
        a.item = item;
        a.order = order;
        a.operand_count = 1;
        return a;
    };
    Buffer buffer;
    buffer.bytes = 1;
    buffer.dies = 3;
    Program first;
    first.ranks = 2;
    first.microbatches = 1;
    first.passes = {{.op = Op::F, .stage = 0}, {.op = Op::B, .stage = 0}};
    first.groups = {{{0, 1}, -1}};
    first.operands = {0};
    first.buffers = {buffer};
    first.actions = {action(Do::pass, Lane::compute, 0, 0), action(Do::pass, Lane::compute, 1, 1),
                     action(Do::send, Lane::forward, 0, 2), action(Do::send, Lane::backward, 0, 3)};
    first.edges = {{1, 2}, {0, 3}};
    Program second = first;
    second.rank = 1;
    second.passes = {{.op = Op::F, .stage = 1}};
    second.actions = {action(Do::receive, Lane::forward, 0, 2),
                      action(Do::receive, Lane::backward, 0, 3),
                      action(Do::pass, Lane::compute, 0, 4)};
    second.edges = {{1, 2}};
    second.buffers.front().dies = 2;
    return {first, second};
}

TEST(CommunicationOrder, DecidesWhenAReadyMessageGoesThatIsLaunchedBehindALateOne) {
    const std::vector<Program> programs = sends_late_then_early();
    ASSERT_EQ(find_deadlock(programs), std::nullopt);
    TableCosts costs = TableCosts::uniform(2, 2, 10, 100, 0);
    costs.latency_ns = 5;
    const auto begin_on_rank_1 = [&](CommunicationOrder order) {
        costs.communication = order;
        for (const Span& span : simulate(programs, costs).timeline.spans) {
            if (span.rank == 1 && span.lane == Lane::compute) return span.begin_ns;
        }
        return int64_t{-1};
    };
    EXPECT_EQ(begin_on_rank_1(lanes), 10 + 5);
    EXPECT_EQ(begin_on_rank_1(streams), 10 + 5) << "they are of different lanes";
    EXPECT_EQ(begin_on_rank_1(launches), 110 + 5) << "starts when the late one does";
    EXPECT_EQ(begin_on_rank_1(serial), 110 + 5 + 5) << "starts when the late one has ended";
}

/// The same message lane both times: a stream takes one after the other.
TEST(CommunicationOrder, MessagesOfOneStreamGoOneAfterTheOther) {
    std::vector<Program> programs = sends_late_then_early();
    for (Program& program : programs) {
        for (Action& action : program.actions) {
            if (action.lane == Lane::backward) action.lane = Lane::forward;
        }
    }
    TableCosts costs = TableCosts::uniform(2, 2, 10, 100, 0);
    costs.latency_ns = 5;
    EXPECT_EQ(step_ns(programs, costs, lanes), 110 + 5 + 10);
    EXPECT_EQ(step_ns(programs, costs, streams), 110 + 5 + 5 + 10);
    EXPECT_EQ(step_ns(programs, costs, launches), 110 + 5 + 5 + 10);
}

// Nothing is faster for waiting for more.
TEST(CommunicationOrder, AStricterOneStartsNothingEarlier) {
    std::mt19937 random(41);
    int64_t later = 0;
    for (int i = 0; i < 150; ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const Schedule schedule = random_schedule(random, {.most_ranks = 5});
        TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs =
            lower(schedule, random_sizes(schedule, random), costs);
        // Not what they were lowered for.
        for (TableCosts::OpCosts& stage : costs.stage_ns) {
            for (int64_t& ns : stage) ns += ns * static_cast<int64_t>(random() % 40) / 100;
        }
        std::vector<Span> before;
        for (const CommunicationOrder order : kCommunicationOrders) {
            costs.communication = order;
            const std::vector<Span> now = simulate(programs, costs).timeline.spans;
            for (size_t span = 0; span < before.size(); ++span) {
                ASSERT_GE(now[span].begin_ns, before[span].begin_ns) << to_string(order);
                later += now[span].begin_ns - before[span].begin_ns;
            }
            before = now;
        }
    }
    EXPECT_GT(later, 0);
}

/// Long messages: a tenth of a forward.
TableCosts slow_links(const Schedule& schedule) {
    TableCosts costs =
        TableCosts::uniform(schedule.ranks, schedule.stages, 1'000'000, 2'000'000, 300'000);
    costs.latency_ns = 100'000;
    return costs;
}

TEST(CommunicationOrder, LoweredForItLosesNothingToTheLaunchOrder) {
    for (const Kind& kind : every_kind(false)) {
        for (const int ranks : {2, 4}) {
            SCOPED_TRACE(name_of(kind) + " p=" + std::to_string(ranks));
            const Schedule schedule = generated(kind, ranks, 2 * ranks + 1);
            TableCosts costs = slow_links(schedule);
            costs.communication = launches;
            const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
            ASSERT_EQ(rendezvous_fault(programs), "");
            ASSERT_EQ(step_ns(programs, costs, launches), step_ns(programs, costs, streams));
        }
    }
}

TEST(CommunicationOrder, LoweredForItStepsAreShorterOnStreams) {
    int64_t for_lanes = 0;
    int64_t for_launches = 0;
    int64_t unhindered = 0;
    for (const Kind& kind : every_kind(false)) {
        const Schedule schedule = generated(kind, 4, 13);
        TableCosts costs = slow_links(schedule);
        const StepSizes sizes = sizes_for(schedule);
        const std::vector<Program> host = lower(schedule, sizes, costs);
        for_lanes += step_ns(host, costs, launches);
        unhindered += step_ns(host, costs, lanes);
        costs.communication = launches;
        for_launches += step_ns(lower(schedule, sizes, costs), costs, launches);
    }
    EXPECT_LT(unhindered, for_launches);
    // A third of what waiting costs, at least.
    EXPECT_LT(3 * (for_launches - unhindered), 2 * (for_lanes - unhindered))
        << unhindered << " " << for_launches << " " << for_lanes;
}

TEST(CommunicationOrder, SerialRunsOneCommunicationOfARankAtATime) {
    for (const Kind& kind : every_kind(false)) {
        SCOPED_TRACE(name_of(kind));
        const Schedule schedule = generated(kind, 3, 5);
        TableCosts costs = slow_links(schedule);
        costs.communication = serial;
        const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
        std::array<int64_t, 3> until{};
        // Spans are by rank, then in the order of the program.
        for (const Span& span : simulate(programs, costs).timeline.spans) {
            if (!has_participants(programs[span.rank].actions[span.action])) continue;
            ASSERT_GE(span.begin_ns, until[span.rank]);
            until[span.rank] = span.end_ns;
        }
    }
}

TEST(CommunicationOrder, HasNames) {
    for (const CommunicationOrder order : kCommunicationOrders) {
        EXPECT_EQ(communication_order_from(to_string(order)), order);
    }
    EXPECT_THROW((void)communication_order_from("launch"), UsageError);
    EXPECT_EQ(TableCosts().communication_order(), lanes);
}

}  // namespace
}  // namespace vocabpipe::testing
