// SPDX-License-Identifier: Apache-2.0
// Passes that overlap communication of their rank are slowed down.
#include "vocabpipe/simulate.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace vocabpipe::testing {
namespace {

/// (rank, name of the pass) -> begin, end.
std::map<std::pair<int, std::string>, std::pair<int64_t, int64_t>> passes_of(
    const Timeline& timeline, const std::vector<Program>& programs) {
    std::map<std::pair<int, std::string>, std::pair<int64_t, int64_t>> result;
    for (const Span& span : timeline.spans) {
        const Program& program = programs[span.rank];
        if (span.lane != Lane::compute) continue;
        result[{span.rank, program.name_of(program.actions[span.action])}] = {span.begin_ns,
                                                                              span.end_ns};
    }
    return result;
}

// F = 10, a hop takes 4, half as long again while communicating. Rank 0: 0F0 0-10; its message
// 10-14; 0F1 does 4 / 1.5 of its 10 until 14 and the other 7 1/3 until 21 1/3, rounded up to 22.
// Rank 1: 1F0 from 14, 8 of it done at 22, when the message of 0F1 comes until 26: 2 * 1.5 more.
// Backwards the same: 1B1 66-98 beside the message of 1B0, 0B0 70-101 beside that of 1B1.
TEST(Overlap, SlowsPassesDownAsDerivedByHand) {
    const Schedule schedule = generated({"gpipe", VocabMode::none, false}, 2, 2);
    TableCosts costs = TableCosts::uniform(2, 2, 10, 30, 0);
    costs.latency_ns = 4;
    costs.slowdown_permille = 500;
    const std::vector<Program> programs =
        lower(schedule, sizes_for(schedule), costs, {.receive_ahead = kAsSoonAsSent});
    const Simulation simulation = simulate(programs, costs);
    auto passes = passes_of(simulation.timeline, programs);
    EXPECT_EQ((passes[{0, "0F0"}]), (std::pair<int64_t, int64_t>{0, 10}));
    EXPECT_EQ((passes[{0, "0F1"}]), (std::pair<int64_t, int64_t>{10, 22}));
    EXPECT_EQ((passes[{1, "1F0"}]), (std::pair<int64_t, int64_t>{14, 25}));
    EXPECT_EQ((passes[{1, "1F1"}]), (std::pair<int64_t, int64_t>{26, 36}));
    EXPECT_EQ((passes[{1, "1B1"}]), (std::pair<int64_t, int64_t>{66, 98}));
    EXPECT_EQ((passes[{0, "0B0"}]), (std::pair<int64_t, int64_t>{70, 101}));
    EXPECT_EQ((passes[{0, "0B1"}]), (std::pair<int64_t, int64_t>{102, 132}));
    EXPECT_EQ(simulation.summary.ranks[0].busy_ns, 10 + 12 + 31 + 30);
}

/// Time within [begin, end) in which a communication of the rank is under way.
int64_t overlapped(const Timeline& timeline, int rank, int64_t begin, int64_t end) {
    std::vector<std::pair<int64_t, int64_t>> busy;
    for (const Span& span : timeline.spans) {
        if (span.rank != rank || span.lane == Lane::compute || span.lane == Lane::local) continue;
        busy.emplace_back(std::max(begin, span.begin_ns), std::min(end, span.end_ns));
    }
    std::sort(busy.begin(), busy.end());
    int64_t sum = 0;
    for (const auto& [from, to] : busy) {
        if (to <= std::max(from, begin)) continue;
        sum += to - std::max(from, begin);
        begin = to;
    }
    return sum;
}

// Every pass ends at the first whole nanosecond at which its work is done.
TEST(Overlap, ConservesWork) {
    std::mt19937 random(31);
    int64_t slowed = 0;
    for (int i = 0; i < 150; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 4});
        SCOPED_TRACE(describe(schedule));
        TableCosts costs = uneven_costs(schedule);
        costs.slowdown_permille = 1 + static_cast<int64_t>(random() % 900);
        costs.latency_ns *= 10;
        const int64_t full = 1000 + costs.slowdown_permille;
        const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
        const Timeline timeline = simulate(programs, costs).timeline;
        for (const Span& span : timeline.spans) {
            if (span.lane != Lane::compute) continue;
            const Program& program = programs[span.rank];
            const int64_t work =
                full * costs.pass_ns(span.rank, pass_of(program, program.actions[span.action]));
            const auto done = [&](int64_t until) {
                const int64_t slow = overlapped(timeline, span.rank, span.begin_ns, until);
                return slow * 1000 + (until - span.begin_ns - slow) * full;
            };
            ASSERT_GE(done(span.end_ns), work);
            ASSERT_LT(done(span.end_ns - 1), work);
            slowed += span.end_ns - span.begin_ns > work / full ? 1 : 0;
        }
    }
    EXPECT_GT(slowed, 500);
}

TEST(Overlap, OfNothingCostsNothing) {
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 1, 4);
    TableCosts costs = uneven_costs(schedule);
    const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
    const int64_t alone = simulate(programs, costs).summary.makespan_ns;
    costs.slowdown_permille = 900;
    EXPECT_EQ(simulate(programs, costs).summary.makespan_ns, alone);
}

// What happens at the same moment may be looked at in any order.
TEST(Simulator, DoesNotDependOnTheOrderOfEdges) {
    std::mt19937 random(32);
    for (int i = 0; i < 150; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 5});
        SCOPED_TRACE(describe(schedule));
        // Small whole costs: many things end together.
        TableCosts costs = TableCosts::uniform(schedule.ranks, schedule.stages, 2, 4, 1);
        costs.latency_ns = 1;
        costs.slowdown_permille = i % 2 == 0 ? 0 : 500;
        std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
        const SimulateOptions options{.cores = i % 3};
        const Timeline once = simulate(programs, costs, options).timeline;
        for (Program& program : programs) {
            std::shuffle(program.edges.begin(), program.edges.end(), random);
        }
        const Timeline again = simulate(programs, costs, options).timeline;
        for (size_t s = 0; s < once.spans.size(); ++s) {
            ASSERT_EQ(once.spans[s].action, again.spans[s].action);
            ASSERT_EQ(once.spans[s].waited_for, again.spans[s].waited_for);
            ASSERT_EQ(once.spans[s].ready_ns, again.spans[s].ready_ns);
            ASSERT_EQ(once.spans[s].begin_ns, again.spans[s].begin_ns);
            ASSERT_EQ(once.spans[s].end_ns, again.spans[s].end_ns);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
