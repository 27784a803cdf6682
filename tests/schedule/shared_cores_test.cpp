// SPDX-License-Identifier: Apache-2.0
// Ranks that share cores: while more passes run than there are cores, each takes longer.
#include "vocabpipe/simulate.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace vocabpipe::testing {
namespace {

// F = 10, B = 30, two ranks on one core. 0F0 0-10 alone; 0F1 and 1F0 together 10-30; 1F1 and 1B0
// alone 30-40-70; 1B1 and 0B0 together 70-130; 0B1 alone 130-160: as long as all passes together.
TEST(SharedCores, StretchPassesAsDerivedByHand) {
    const Schedule schedule = generated({"gpipe", VocabMode::none, false}, 2, 2);
    const TableCosts costs = TableCosts::uniform(2, 2, 10, 30, 0);
    const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
    const Simulation simulation = simulate(programs, costs, {.cores = 1});
    std::map<std::string, std::pair<int64_t, int64_t>> passes;
    for (const Span& span : simulation.timeline.spans) {
        const Program& program = programs[span.rank];
        if (span.lane != Lane::compute) continue;
        passes[program.name_of(program.actions[span.action])] = {span.begin_ns, span.end_ns};
    }
    using Times = std::pair<int64_t, int64_t>;
    EXPECT_EQ(passes["0F0"], (Times{0, 10}));
    EXPECT_EQ(passes["0F1"], (Times{10, 30}));
    EXPECT_EQ(passes["1F0"], (Times{10, 30}));
    EXPECT_EQ(passes["1F1"], (Times{30, 40}));
    EXPECT_EQ(passes["1B0"], (Times{40, 70}));
    EXPECT_EQ(passes["1B1"], (Times{70, 130}));
    EXPECT_EQ(passes["0B0"], (Times{70, 130}));
    EXPECT_EQ(passes["0B1"], (Times{130, 160}));
}

TEST(SharedCores, NeverIdleWhileThereIsWorkAndCostNothingWhereThereAreEnough) {
    for (const char* name : {"1f1b", "zb-h1", "v-half", "interleaved"}) {
        const Schedule schedule = generated({name, VocabMode::one_barrier, false}, 4, 8);
        TableCosts costs = TableCosts::uniform(4, schedule.stages, 1009, 2003, 307);
        const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
        const auto makespan = [&](int cores) {
            return simulate(programs, costs, {.cores = cores}).summary.makespan_ns;
        };
        const Simulation alone = simulate(programs, costs);
        int64_t work = 0;
        for (const RankSummary& rank : alone.summary.ranks) work += rank.busy_ns;
        EXPECT_EQ(makespan(0), alone.summary.makespan_ns) << name;
        EXPECT_EQ(makespan(4), alone.summary.makespan_ns) << name;
        // Every end is rounded up to a whole nanosecond, so a little may be lost.
        const auto passes = static_cast<int64_t>(alone.timeline.spans.size());
        EXPECT_GE(makespan(1), work) << name;
        EXPECT_LE(makespan(1), work + passes) << name;
        for (const int cores : {2, 3}) {
            EXPECT_GE(makespan(cores), std::max(alone.summary.makespan_ns, work / cores)) << name;
            EXPECT_LE(makespan(cores), makespan(cores - 1) + passes) << name;
        }
    }
}

// Costs of an hour and as many ranks as anybody has do not leave 64 bits.
TEST(SharedCores, CountLargeCosts) {
    constexpr int64_t kLong = int64_t{1} << 40;
    const Schedule schedule = generated({"gpipe", VocabMode::none, false}, 2, 2);
    const TableCosts costs = TableCosts::uniform(2, 2, kLong, 2 * kLong, 0);
    const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
    EXPECT_EQ(simulate(programs, costs, {.cores = 1}).summary.makespan_ns, 12 * kLong);
}

}  // namespace
}  // namespace vocabpipe::testing
