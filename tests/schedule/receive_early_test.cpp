// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/receive_early.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"

#include "tests/schedule/program_tools.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace vocabpipe::testing {
namespace {

struct Made {
    int64_t step_ns = 0;
    uint64_t arena_bytes = 0;
};

Made made_by(const std::vector<Program>& programs, const TableCosts& costs) {
    Made made{.step_ns = simulate(programs, costs).summary.step_ns};
    for (const Program& program : programs) {
        made.arena_bytes = std::max(made.arena_bytes, program.arena_bytes);
    }
    return made;
}

// Schedules of every family, whole and sharded, with links of three speeds: F is 200.
TEST(ReceiveEarly, IsNeverSlowerAndTakesHardlyMoreMemory) {
    int faster = 0;
    for (const Generator& family : generators()) {
        if (family.name == "v-search") continue;  // as the other V families, and slower to make
        for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
            for (const int64_t latency : {0, 10, 50}) {
                SCOPED_TRACE(std::string(family.name) + " " + std::string(to_string(mode)) +
                             " latency " + std::to_string(latency));
                ScheduleOptions options{
                    .ranks = 4, .microbatches = 8, .vocab_mode = mode, .vocab_size = 64};
                options.costs = PassCosts::uniform(200, 400, 20);
                options.costs.hop = latency;
                const Schedule schedule = make_schedule(family.name, options);
                TableCosts costs =
                    TableCosts::uniform(schedule.ranks, schedule.stages, 200, 400, 20);
                costs.latency_ns = latency;
                const StepSizes sizes = sizes_for(schedule);
                const Made before = made_by(lower(schedule, sizes, costs), costs);
                const EarlyReceives early = lower_receiving_early(schedule, sizes, costs);
                const Made after = made_by(early.lowered.all(), costs);
                EXPECT_LE(after.step_ns, before.step_ns);
                EXPECT_LE(after.arena_bytes, before.arena_bytes + before.arena_bytes / 100);
                EXPECT_EQ(find_deadlock(early.lowered), std::nullopt);
                EXPECT_EQ(after.step_ns<before.step_ns, early.receive_ahead> 1);
                if (latency == 0 && mode == VocabMode::none) {
                    EXPECT_EQ(early.receive_ahead, 1);
                }
                faster += after.step_ns < before.step_ns ? 1 : 0;
            }
        }
    }
    EXPECT_GE(faster, 10);
}

// Without vocabulary passes, messages of no size: what simulate() finds with receives posted as
// soon as sent is what time_passes() says, which knows no receives.
TEST(ReceiveEarly, HidesTheWaitOfGPipe) {
    ScheduleOptions options{.ranks = 8, .microbatches = 16, .vocab_size = 1};
    options.costs = PassCosts::uniform(200, 400, 0);
    options.costs.hop = 50;
    const Schedule schedule = make_schedule("gpipe", options);
    TableCosts costs = TableCosts::uniform(schedule.ranks, schedule.stages, 200, 400, 0);
    costs.latency_ns = 50;
    const StepSizes sizes = sizes_for(schedule);
    const int64_t listed = time_passes(schedule, options.costs).makespan;
    const int64_t before = simulate(lower(schedule, sizes, costs), costs).summary.makespan_ns;
    const EarlyReceives early = lower_receiving_early(schedule, sizes, costs);
    const int64_t after = simulate(early.lowered.all(), costs).summary.makespan_ns;
    EXPECT_GT(before, listed + listed / 20);
    EXPECT_LE(after, listed + 50);  // and the reports at the end of the step
}

TEST(ReceiveEarly, IsAskedForByName) {
    EXPECT_EQ(receive_ahead_from("auto"), 0);
    EXPECT_EQ(receive_ahead_from("1"), 1);
    EXPECT_EQ(receive_ahead_from("1073741824"), 1 << 30);
    for (const char* text : {"", "0", "-1", "1.5", "2x", "Auto", "1073741825", "99999999999"}) {
        EXPECT_THROW((void)receive_ahead_from(text), UsageError) << text;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
