// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/explain.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// "F0 on 1 3-5 compute": one segment or link, for comparison.
std::string line(const std::string& name, int rank, int64_t begin, int64_t end, Cause cause) {
    return name + " on " + std::to_string(rank) + " " + std::to_string(begin) + "-" +
           std::to_string(end) + " " + std::string(to_string(cause));
}

std::vector<std::string> lines(const CriticalPath& path, const std::vector<Program>& programs) {
    std::vector<std::string> result;
    for (const PathSegment& s : path.segments) {
        const Program& program = programs[static_cast<size_t>(s.rank)];
        const bool named = s.action != kNoAction;
        result.push_back(line(named ? program.name_of(program.actions[s.action]) : "-", s.rank,
                              s.begin_ns, s.end_ns, s.cause));
    }
    return result;
}

std::vector<std::string> lines(const Explanation& explanation) {
    std::vector<std::string> result;
    for (const ChainLink& l : explanation.chain) {
        result.push_back(line(l.name, l.rank, l.begin_ns, l.end_ns, l.cause));
    }
    return result;
}

std::map<std::string, int64_t> shares(const CriticalPath& path) {
    std::map<std::string, int64_t> result;
    for (const PathShare& share : path.shares) result[share.name] += share.ns;
    return result;
}

/// 1F1B of two ranks and two microbatches; F = 1, B = 2, a hop 1, vocabulary free:
///
///     rank 0  0F0 0F1 .   .   .   .   0B0 0B0 .   0B1 0B1
///     rank 1  .   .   1F0 1B0 1B0 1F1 1B1 1B1 .   .   .
struct TwoRanks {
    TwoRanks() {
        const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 2, 2);
        costs = TableCosts::uniform(2, 2, 1, 2, 0);
        costs.latency_ns = 1;
        programs = lower(schedule, sizes_for(schedule), costs, {.receive_ahead = kAsSoonAsSent});
        timeline = simulate(programs, costs).timeline;
    }
    TableCosts costs;
    std::vector<Program> programs;
    Timeline timeline;
};

TEST(CriticalPath, OfTwoRanksIsTheOneDerivedByHand) {
    const TwoRanks two;
    const CriticalPath path = critical_path(two.timeline, two.programs);
    EXPECT_EQ(path.total_ns, 11);
    EXPECT_THAT(lines(path, two.programs),
                ElementsAre("0F0 on 0 0-1 compute",
                            "send to rank 1 activation of microbatch 0 on 0 1-2 transfer",
                            "1F0 on 1 2-3 compute", "1B0 on 1 3-5 compute", "1F1 on 1 5-6 compute",
                            "1B1 on 1 6-8 compute",
                            "send to rank 0 gradient of microbatch 1 on 1 8-9 transfer",
                            "0B1 on 0 9-11 compute"));
    EXPECT_EQ(shares(path), (std::map<std::string, int64_t>{{"F", 3}, {"B", 6}, {"transfer", 2}}));
    EXPECT_EQ(path.shares.front().name, "B");
    EXPECT_DOUBLE_EQ(path.shares.front().share, 6.0 / 11);
}

TEST(Explanation, FollowsTheIdleRankAcrossRanksToBeforeItWasIdle) {
    const TwoRanks two;
    const Explanation idle = explain(two.timeline, two.programs, 0, 4);
    EXPECT_EQ(idle.state, Explanation::State::idle);
    EXPECT_EQ(idle.name, "0B0");
    EXPECT_EQ(idle.begin_ns, 2);
    EXPECT_EQ(idle.end_ns, 6);
    EXPECT_THAT(lines(idle),
                ElementsAre("send to rank 0 gradient of microbatch 0 on 1 5-6 transfer",
                            "1B0 on 1 3-5 compute", "1F0 on 1 2-3 compute"));
    EXPECT_THAT(idle.chain.front().why, HasSubstr("gives 0B0 its input"));
    EXPECT_EQ(
        to_text(idle),
        "rank 0 is idle at 4 ns: since 2 ns it waits to start 0B0, which begins at 6 ns\n"
        "  5 ns .. 6 ns  rank 1  send to rank 0 gradient of microbatch 0: gives 0B0 its input\n"
        "  3 ns .. 5 ns  rank 1  1B0: gives send to rank 0 gradient of microbatch 0 its input\n"
        "  2 ns .. 3 ns  rank 1  1F0: ran before S0\n");
}

TEST(Explanation, SaysWhatABusyRankRunsAndWhenItHasFinished) {
    const TwoRanks two;
    const Explanation busy = explain(two.timeline, two.programs, 1, 7);
    EXPECT_EQ(busy.state, Explanation::State::busy);
    EXPECT_EQ(busy.name, "1B1");
    EXPECT_EQ(to_text(busy), "rank 1 runs 1B1 at 7 ns, from 6 ns to 8 ns\n");
    EXPECT_EQ(to_text(busy, {}, {.tensor = 2}),
              "rank 1 (pipeline rank 0, tensor rank 1) runs 1B1 at 7 ns, from 6 ns to 8 ns\n");
    const Explanation done = explain(two.timeline, two.programs, 1, 8);
    EXPECT_EQ(done.state, Explanation::State::finished);
    EXPECT_EQ(to_text(done),
              "rank 1 has finished all its passes at 8 ns, since 8 ns; the step ends at 11 ns\n");
}

TEST(Explanation, OfTheFillReachesBackToTheStart) {
    const TwoRanks two;
    EXPECT_THAT(lines(explain(two.timeline, two.programs, 1, 0)),
                ElementsAre("send to rank 1 activation of microbatch 0 on 0 1-2 transfer",
                            "0F0 on 0 0-1 compute"));
}

TEST(Explanation, RefusesRanksAndTimesThatAreNotThere) {
    const TwoRanks two;
    const auto message = [&](int rank, int64_t at) {
        try {
            (void)explain(two.timeline, two.programs, rank, at);
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_EQ(message(2, 0), "explain: rank 2 does not exist, ranks are 0 to 1");
    EXPECT_EQ(message(-1, 0), "explain: rank -1 does not exist, ranks are 0 to 1");
    EXPECT_EQ(message(0, 12),
              "explain: time 12 ns is outside the step, which lasts from 0 to 11 ns");
    EXPECT_EQ(message(0, 11), "accepted");
    EXPECT_THROW((void)explain({}, two.programs, 0, 0), UsageError);
    EXPECT_THROW((void)critical_path({}, two.programs), UsageError);
}

/// One microbatch on three ranks, one barrier. S takes 5 on ranks 0 and 2 and 9 on rank 1: C1 waits
/// for rank 1.
TEST(Explanation, OfACollectiveGoesOnAtItsLastParticipant) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 3, 1, 300);
    TableCosts costs = TableCosts::uniform(3, 3, 10, 20, 0);
    for (size_t rank = 0; rank < 3; ++rank) {
        costs.rank_ns[rank][static_cast<size_t>(Op::S)] = rank == 1 ? 9 : 5;
    }
    costs.latency_ns = 1;
    const std::vector<Program> programs =
        lower(schedule, sizes_for(schedule), costs, {.receive_ahead = kAsSoonAsSent});
    const Timeline timeline = simulate(programs, costs).timeline;
    // E all_to_all 0-1, gather 1-2, F 2-12, 13-23, 24-34, C0 34-35, S on 0 and 1 from 35, on 2 from
    // 34; S on rank 1 until 44, C1 44-45, all_to_all 45-46, gather 46-47, B on rank 2 from 47.
    const Explanation idle = explain(timeline, programs, 2, 40);
    EXPECT_EQ(idle.begin_ns, 39);
    // T needs C1 alone and B the sum as well, whichever comes first in rank 2's list.
    ASSERT_FALSE(idle.chain.empty());
    const auto& chain = idle.chain;
    EXPECT_EQ(chain.back().name, "S0");
    EXPECT_EQ(chain.back().rank, 1);
    EXPECT_EQ(chain.back().begin_ns, 35);
    EXPECT_EQ(chain.back().end_ns, 44);
    const ChainLink& barrier = chain[chain.size() - 2];
    EXPECT_EQ(barrier.name, "all_gather of microbatch 0");
    EXPECT_EQ(barrier.cause, Cause::collective);
    EXPECT_EQ(barrier.rank, 1);
    EXPECT_THAT(barrier.why, HasSubstr("rank 1 came last"));
}

/// Rank 0: 0F0 makes a, a is sent for 5; 0F1 writes where a was. Rank 1 receives and does nothing.
std::vector<Program> program_that_reuses_memory() {
    std::vector<Program> programs(2);
    for (int rank = 0; rank < 2; ++rank) {
        Program& program = programs[static_cast<size_t>(rank)];
        program.rank = rank;
        program.ranks = 2;
        program.microbatches = 2;
        program.groups = {{{0, 1}, -1}};
    }
    Program& sender = programs[0];
    sender.passes = {{Op::F, 0, 0}, {Op::F, 0, 1}};
    sender.buffers = {{.bytes = 8, .offset = 0, .born = 0, .dies = 1},
                      {.bytes = 8, .offset = 4, .born = 2, .dies = 2}};
    sender.operands = {0, 0, 1};
    sender.actions = {
        {.what = Do::pass, .operand_count = 1, .item = 0, .order = 0, .first_operand = 0},
        {.what = Do::send,
         .lane = Lane::forward,
         .operand_count = 1,
         .item = 0,
         .order = 1,
         .first_operand = 1},
        {.what = Do::pass, .operand_count = 1, .item = 1, .order = 2, .first_operand = 2}};
    sender.edges = {{0, 1}, {1, 2}};
    Program& receiver = programs[1];
    receiver.buffers = {{.bytes = 8, .born = 0, .dies = 0}};
    receiver.operands = {0};
    receiver.actions = {{.what = Do::receive,
                         .lane = Lane::forward,
                         .operand_count = 1,
                         .item = 0,
                         .order = 1,
                         .first_operand = 0}};
    return programs;
}

TEST(CriticalPath, TellsWaitingForMemoryFromWaitingForData) {
    std::vector<Program> programs = program_that_reuses_memory();
    TableCosts costs = TableCosts::uniform(2, 1, 3, 0, 0);
    costs.latency_ns = 5;
    const CriticalPath path = critical_path(simulate(programs, costs).timeline, programs);
    EXPECT_THAT(
        lines(path, programs),
        ElementsAre("0F0 on 0 0-3 compute", "0F1 on 0 3-8 memory reuse", "0F1 on 0 8-11 compute"));
    programs[0].buffers[1].offset = 8;  // no longer the same place: the edge must be data
    const CriticalPath data = critical_path(simulate(programs, costs).timeline, programs);
    EXPECT_THAT(lines(data, programs),
                ElementsAre("0F0 on 0 0-3 compute",
                            "send to rank 1 activation of microbatch 0 on 0 3-8 transfer",
                            "0F1 on 0 8-11 compute"));
}

TEST(CriticalPath, ShowsReceivesThatWerePostedLate) {
    // Rank 1 works on microbatch 0 while 1 could travel: receives are posted one pass ahead.
    const Schedule schedule = generated({"gpipe", VocabMode::none, false}, 2, 4);
    TableCosts costs = TableCosts::uniform(2, 2, 2, 2, 1);
    costs.latency_ns = 50;
    const auto path_with = [&](int ahead) {
        const std::vector<Program> programs =
            lower(schedule, sizes_for(schedule), costs, {.receive_ahead = ahead});
        return shares(critical_path(simulate(programs, costs).timeline, programs));
    };
    EXPECT_EQ(path_with(kAsSoonAsSent).count("late receive"), 0U);
    EXPECT_GT(path_with(1)["late receive"], 0);
}

TEST(CriticalPath, CountsTheFixedTimeOfTheStep) {
    TwoRanks two;
    two.costs.fixed_ns = 40;
    const CriticalPath path =
        critical_path(simulate(two.programs, two.costs).timeline, two.programs);
    EXPECT_EQ(path.total_ns, 51);
    EXPECT_EQ(path.segments.front().cause, Cause::fixed);
    EXPECT_EQ(path.segments.front().begin_ns, -40);
    EXPECT_EQ(path.segments.front().end_ns, 0);
    EXPECT_EQ(to_text(path),
              "critical path: 51 ns in 9 segments\n"
              "  78.43 %         40 ns  fixed\n"
              "  11.76 %          6 ns  B\n"
              "   5.88 %          3 ns  F\n"
              "   3.92 %          2 ns  transfer\n");
}

/// Segments follow each other from `begin` on without a gap.
void expect_tiles(const std::vector<PathSegment>& segments, int64_t begin, int64_t end) {
    for (const PathSegment& segment : segments) {
        ASSERT_EQ(segment.begin_ns, begin);
        ASSERT_LT(segment.begin_ns, segment.end_ns);
        begin = segment.end_ns;
    }
    ASSERT_EQ(begin, end);
}

TEST(CriticalPath, AddsUpToTheMakespanWhateverTheSchedule) {
    std::mt19937 random(12);
    for (int i = 0; i < 300; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 5});
        SCOPED_TRACE(describe(schedule));
        TableCosts costs = uneven_costs(schedule);
        if (i % 3 == 1) costs.slowdown_permille = 130;
        if (i % 3 == 2) costs.fixed_ns = 1'000;
        const LowerOptions options{.receive_ahead = i % 2 == 0 ? 1 : 100};
        const std::vector<Program> programs =
            lower(schedule, random_sizes(schedule, random), costs, options);
        const Simulation simulation = simulate(programs, costs, {.wait_for_reports = i % 5 != 0});
        const CriticalPath path = critical_path(simulation.timeline, programs);
        ASSERT_EQ(path.total_ns, simulation.summary.makespan_ns + costs.fixed_ns);
        ASSERT_NO_FATAL_FAILURE(
            expect_tiles(path.segments, -costs.fixed_ns, simulation.summary.makespan_ns));
        int64_t sum = 0;
        for (const PathShare& share : path.shares) {
            sum += share.ns;
            ASSERT_NE(share.cause, Cause::overhead);  // simulated: nothing idles for no reason
        }
        ASSERT_EQ(sum, path.total_ns);
    }
}

TEST(Explanation, CoversEveryIdleTimeOfEveryRank) {
    std::mt19937 random(13);
    for (int i = 0; i < 100; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 4});
        SCOPED_TRACE(describe(schedule));
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs =
            lower(schedule, random_sizes(schedule, random), costs);
        const Simulation simulation = simulate(programs, costs);
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            const auto at = static_cast<int64_t>(
                random() % static_cast<uint64_t>(simulation.summary.makespan_ns + 1));
            const Explanation explanation = explain(simulation.timeline, programs, rank, at);
            if (explanation.state != Explanation::State::idle) continue;
            ASSERT_LE(explanation.begin_ns, at);
            ASSERT_LT(at, explanation.end_ns);
            ASSERT_FALSE(explanation.chain.empty());
            int64_t end = explanation.end_ns;
            for (const ChainLink& link : explanation.chain) {
                ASSERT_EQ(link.end_ns, end);
                ASSERT_GT(end, explanation.begin_ns) << "goes on for longer than it must";
                ASSERT_FALSE(link.why.empty());
                end = link.begin_ns;
            }
            ASSERT_LE(end, explanation.begin_ns);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
