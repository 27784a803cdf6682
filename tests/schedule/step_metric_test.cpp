// SPDX-License-Identifier: Apache-2.0
// Which number is the time of a step (docs/simulation.md).
#include "vocabpipe/simulate.hpp"

#include "tests/schedule/program_tools.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

struct Simulated {
    Simulated(const char* family, int64_t report_bytes, bool wait_for_reports, int64_t fixed) {
        const Schedule schedule = generated({family, VocabMode::none, false}, 4, 8);
        StepSizes sizes = sizes_for(schedule);
        sizes.report_bytes = report_bytes;
        TableCosts costs = TableCosts::uniform(4, 4, 1, 2, 0);
        for (TableCosts::OpCosts& rank : costs.rank_ns) rank[static_cast<size_t>(Op::Update)] = 5;
        costs.fixed_ns = fixed;
        programs = lower(schedule, sizes, costs, {.receive_ahead = kAsSoonAsSent});
        simulation = simulate(programs, costs, {.wait_for_reports = wait_for_reports});
    }
    [[nodiscard]] const TimelineSummary& summary() const { return simulation.summary; }
    std::vector<Program> programs;
    Simulation simulation;
};

// Unit costs: ZB-H2 and ZB-H1 have the same makespan, 3m+p-1 = 27; the largest span of ZB-H2 has no
// bubble, 24, of ZB-H1 3.
TEST(StepTime, IsTheLargestSpanWhereNothingSynchronisesTheRanks) {
    const Simulated run("zb-h2", 0, true, 100);
    EXPECT_FALSE(run.summary().barrier);
    EXPECT_EQ(run.summary().makespan_ns, 27);
    EXPECT_EQ(run.summary().largest_span_ns, 24);
    EXPECT_EQ(run.summary().fixed_ns, 100);
    EXPECT_EQ(run.summary().step_ns, 124);
}

TEST(StepTime, IsTheMakespanWhereTheOptimizerWaitsForAllRanks) {
    const Simulated run("zb-h2", 8, true, 100);
    EXPECT_TRUE(run.summary().barrier);
    EXPECT_EQ(run.summary().makespan_ns, 27 + 5);
    EXPECT_EQ(run.summary().step_ns, 132);
}

TEST(StepTime, IsTheLargestSpanWhereTheOptimizerGoesAhead) {
    const Simulated run("zb-h2", 8, false, 0);
    EXPECT_FALSE(run.summary().barrier);
    EXPECT_EQ(run.summary().makespan_ns, 27 + 5);
    EXPECT_EQ(run.summary().largest_span_ns, 24 + 5);
    EXPECT_EQ(run.summary().step_ns, 29);
    // The reports still travel, and only the optimizer step has moved.
    const Simulated waiting("zb-h2", 8, true, 0);
    ASSERT_EQ(run.simulation.timeline.spans.size(), waiting.simulation.timeline.spans.size());
    int moved = 0;
    for (size_t i = 0; i < run.simulation.timeline.spans.size(); ++i) {
        const Span& a = run.simulation.timeline.spans[i];
        const Span& b = waiting.simulation.timeline.spans[i];
        if (a.begin_ns == b.begin_ns) continue;
        ++moved;
        const Program& program = run.programs[a.rank];
        EXPECT_EQ(program.name_of(program.actions[a.action]), "Update");
    }
    EXPECT_GT(moved, 0);
}

}  // namespace
}  // namespace vocabpipe::testing
