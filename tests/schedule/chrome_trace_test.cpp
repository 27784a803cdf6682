// SPDX-License-Identifier: Apache-2.0
// The trace file, read back. Executed timelines: executed_trace_test.cpp.
#include "tests/schedule/program_tools.hpp"
#include "tests/schedule/trace_reader.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace vocabpipe::testing {
namespace {

TEST(ChromeTrace, ShowsEveryActionOfEverySimulatedFamilyAndMode) {
    for (const Kind& kind : every_kind(true)) {
        SCOPED_TRACE(name_of(kind));
        const Schedule schedule = generated(kind, 4, 6);
        const std::vector<Program> programs = lowered(schedule);
        const Simulation simulation = simulate(programs, uneven_costs(schedule));
        const Trace trace =
            written_and_read_back(simulation.timeline, programs, "a \"title\" with \\ and \n");
        EXPECT_EQ(trace.title, "a \"title\" with \\ and \n");
        ASSERT_NO_FATAL_FAILURE(expect_sound_trace(trace, simulation.timeline, programs));
    }
}

TEST(ChromeTrace, ShowsSchedulesThatNobodyDesigned) {
    std::mt19937 random(31);
    for (int i = 0; i < 60; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 5});
        SCOPED_TRACE(describe(schedule));
        const std::vector<Program> programs = lowered(schedule);
        const Simulation simulation = simulate(programs, uneven_costs(schedule));
        ASSERT_NO_FATAL_FAILURE(
            expect_sound_trace(written_and_read_back(simulation.timeline, programs, "random"),
                               simulation.timeline, programs));
    }
}

TEST(ChromeTrace, CountsBytesAndMicrobatchesInFlight) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 4, 12);
    const std::vector<Program> programs = lowered(schedule);
    const Simulation simulation = simulate(programs, uneven_costs(schedule));
    const Trace trace = written_and_read_back(simulation.timeline, programs, "counters");
    for (int rank = 0; rank < 4; ++rank) {
        int64_t in_flight = 0;
        int64_t bytes = 0;
        for (const Trace::Counter& counter : trace.counters) {
            if (counter.rank != rank) continue;
            int64_t& peak = counter.name == "bytes alive" ? bytes : in_flight;
            peak = std::max(peak, counter.value);
        }
        EXPECT_EQ(in_flight, 4 + 1 - rank);
        // The counter shows what is alive at the end of every moment.
        EXPECT_LE(bytes, static_cast<int64_t>(simulation.peak_bytes[static_cast<size_t>(rank)]));
        EXPECT_GT(bytes, 0);
    }
}

// Executed timelines: times from a clock, sends that wait long for slow receivers, combines in the
// midst of passes, actions that have not run.
TEST(ChromeTrace, GivesOverlappingTransfersTracksOfTheirOwn) {
    const int m = 60;
    const std::vector<Program> programs =
        lowered(generated({"gpipe", VocabMode::none, false}, 2, m));
    Timeline timeline;
    const int64_t start = 1'700'000'000'123'456'789;
    for (const Program& program : programs) {
        int64_t clock = start;
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            const Lane lane = program.actions[i].lane;
            // Passes one after the other, transfers open from their start to the very end.
            const int64_t begin = clock;
            if (lane == Lane::compute) clock += 1001;
            timeline.spans.push_back({.action = i,
                                      .rank = static_cast<uint16_t>(program.rank),
                                      .lane = lane,
                                      .begin_ns = begin,
                                      .end_ns = lane == Lane::compute ? clock : start + 10'000'000,
                                      .cpu_ns = lane == Lane::compute ? 900 : 0});
        }
    }
    const Trace trace = written_and_read_back(timeline, programs, "slow receiver");
    ASSERT_NO_FATAL_FAILURE(expect_sound_trace(trace, timeline, programs));
}

// A run that was ended in its third forward.
TEST(ChromeTrace, CountsMicrobatchesOnlyOfPassesThatRan) {
    const std::vector<Program> programs =
        lowered(generated({"gpipe", VocabMode::none, false}, 2, 3));
    Timeline timeline;
    for (uint32_t i = 0; i < programs[0].actions.size(); ++i) {
        const Action& action = programs[0].actions[i];
        if (action.what != Do::pass) continue;
        const Pass& pass = programs[0].passes[action.item];
        if (pass.op != Op::F || pass.microbatch == 2) continue;
        timeline.spans.push_back({.action = i,
                                  .rank = 0,
                                  .lane = Lane::compute,
                                  .begin_ns = 1000 * pass.microbatch,
                                  .end_ns = 1000 * pass.microbatch + 900,
                                  .cpu_ns = 900});
    }
    ASSERT_EQ(timeline.spans.size(), 2U);
    const Trace trace = written_and_read_back(timeline, programs, "ended early");
    EXPECT_EQ(trace.slices.size(), 2U);
    std::map<int, int64_t> most;
    for (const Trace::Counter& counter : trace.counters) {
        if (counter.name == "bytes alive") continue;
        most[counter.rank] = std::max(most[counter.rank], counter.value);
    }
    EXPECT_EQ(most[0], 2);
    EXPECT_EQ(most[1], 0);
}

TEST(ChromeTrace, IsWrittenForATimelineWithoutSpans) {
    const Trace trace = written_and_read_back({}, std::vector<Program>(1), "nothing");
    EXPECT_TRUE(trace.slices.empty());
}

TEST(ChromeTrace, SaysWhichFileCannotBeWritten) {
    try {
        write_chrome_trace("/nonexistent/folder/trace.json", {}, {}, "");
        FAIL();
    } catch (const OutputFileError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("/nonexistent/folder/trace.json"));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
