// SPDX-License-Identifier: Apache-2.0
// Runs by name, and the trace file they are read back from.
#include "vocabpipe/recorded_run.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Slice = RecordedRun::Slice;

std::string whole_name(const RecordedRun& run, const Slice& slice) {
    return run.names[slice.name] +
           (slice.number == RecordedRun::kNone ? "" : std::to_string(slice.number));
}

/// Slices by rank, name and, because two messages may have the same name, order.
std::map<std::tuple<int, std::string, uint32_t>, const Slice*> by_name(const RecordedRun& run) {
    std::map<std::tuple<int, std::string, uint32_t>, const Slice*> result;
    for (const Slice& slice : run.slices) {
        result[{slice.rank, whole_name(run, slice), slice.order}] = &slice;
    }
    return result;
}

void expect_is_timeline(const RecordedRun& run, const Timeline& timeline,
                        const std::vector<Program>& programs) {
    ASSERT_EQ(run.slices.size(), timeline.spans.size());
    ASSERT_EQ(run.ranks, static_cast<int>(programs.size()));
    const auto slices = by_name(run);
    ASSERT_EQ(slices.size(), run.slices.size());
    int64_t origin = INT64_MAX;
    for (const Span& span : timeline.spans) origin = std::min(origin, span.begin_ns);
    for (const Span& span : timeline.spans) {
        const Program& program = programs[span.rank];
        const Action& action = program.actions[span.action];
        const uint32_t order = has_participants(action) ? action.order : RecordedRun::kNone;
        const Slice& slice = *slices.at({span.rank, program.name_of(action), order});
        ASSERT_EQ(slice.begin_ns, span.begin_ns - origin);
        ASSERT_EQ(slice.end_ns, span.end_ns - origin);
        ASSERT_EQ(slice.cpu_ns, span.cpu_ns);
        ASSERT_EQ(slice.lane, span.lane);
        if (span.waited_for == UINT32_MAX) {
            ASSERT_EQ(slice.waited_for, RecordedRun::kNone);
        } else {
            ASSERT_EQ(whole_name(run, run.slices.at(slice.waited_for)),
                      program.name_of(program.actions[span.waited_for]));
            ASSERT_EQ(run.slices[slice.waited_for].rank, span.rank);
        }
    }
    for (size_t i = 1; i < run.slices.size(); ++i) {
        const auto key = [](const Slice& s) { return std::tuple(s.rank, s.lane, s.begin_ns); };
        ASSERT_LE(key(run.slices[i - 1]), key(run.slices[i]));
    }
}

struct Simulated {
    std::vector<Program> programs;
    Simulation simulation;
};

Simulated simulated(const Schedule& schedule) {
    Simulated result;
    result.programs = lowered(schedule);
    result.simulation = simulate(result.programs, uneven_costs(schedule));
    return result;
}

TEST(RecordedRun, HasEverySpanUnderItsName) {
    for (const Kind& kind : every_kind(true)) {
        SCOPED_TRACE(name_of(kind));
        const Simulated run = simulated(generated(kind, 4, 6));
        ASSERT_NO_FATAL_FAILURE(
            expect_is_timeline(record(run.simulation.timeline, run.programs, ""),
                               run.simulation.timeline, run.programs));
    }
}

TEST(RecordedRun, KeepsFewNamesHoweverManyMicrobatches) {
    const Simulated run = simulated(generated({"1f1b", VocabMode::one_barrier, false}, 4, 64));
    const RecordedRun recorded = record(run.simulation.timeline, run.programs, "");
    EXPECT_GT(recorded.slices.size(), 2000U);
    EXPECT_LT(recorded.names.size(), 60U);
}

TEST(RecordedRun, RemembersThePeakOfTheMemory) {
    const Simulated run = simulated(generated({"1f1b", VocabMode::one_barrier, false}, 4, 9));
    const std::vector<PersistentBytes> persistent(
        4, PersistentBytes{.weights = 1000, .gradients = 200, .optimizer = 30});
    const RecordedRun recorded = record(run.simulation.timeline, run.programs, "", persistent);
    for (size_t rank = 0; rank < 4; ++rank) {
        int64_t alive = 0;
        int64_t largest = 0;
        int64_t at = -1;
        for (const RecordedRun::MemoryChange& change : recorded.memory[rank]) {
            if (change.at_ns != at) largest = std::max(largest, alive);
            ASSERT_GE(change.at_ns, at);
            at = change.at_ns;
            alive += change.bytes;
        }
        EXPECT_EQ(alive, 1230);
        // Changes of one moment are summed up, so that a peak of no duration does not show.
        EXPECT_LE(largest, static_cast<int64_t>(run.simulation.peak_bytes[rank]) + 1230);
        EXPECT_GT(largest, static_cast<int64_t>(run.simulation.peak_bytes[rank]) / 2);
    }
}

TEST(RecordedRun, SumsUpLikeTheTimeline) {
    const Simulated run = simulated(generated({"gpipe", VocabMode::two_barriers, false}, 3, 5));
    const TimelineSummary expected = run.simulation.summary;
    const TimelineSummary summary = summarize(record(run.simulation.timeline, run.programs, ""));
    EXPECT_EQ(summary.makespan_ns, expected.makespan_ns);
    EXPECT_EQ(summary.largest_span_ns, expected.largest_span_ns);
    EXPECT_EQ(summary.step_ns, expected.step_ns);
    EXPECT_DOUBLE_EQ(summary.bubble, expected.bubble);
    for (size_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(summary.ranks[rank].busy_ns, expected.ranks[rank].busy_ns);
    }
}

TEST(ChromeTraceReader, ReadsBackTheMeshWhoseTraceNamesEveryPlace) {
    const TempFolder folder;
    const Simulated run = simulated(generated({"1f1b", VocabMode::one_barrier, false}, 4, 2));
    const Timeline& timeline = run.simulation.timeline;
    const auto written = [&](const Mesh& mesh) {
        write_chrome_trace(folder / "trace.json", timeline, run.programs, "a run", mesh);
        EXPECT_EQ(read_chrome_trace(folder / "trace.json").mesh,
                  record(timeline, run.programs, "a run", {}, mesh).mesh);
        return read_file(folder / "trace.json");
    };
    const std::string tensor = written({.pipeline = 2, .tensor = 2});
    EXPECT_THAT(tensor, HasSubstr("rank 1 (pipeline rank 0, tensor rank 1)"));
    EXPECT_THAT(tensor, HasSubstr("rank 2 (pipeline rank 1, tensor rank 0)"));
    EXPECT_THAT(written({.data = 2, .tensor = 2}),
                HasSubstr("rank 2 (pipeline rank 0, replica 1, tensor rank 0)"));
    EXPECT_THAT(written({.tensor = 2, .context = 2}),
                AllOf(HasSubstr("rank 1 (pipeline rank 0, context rank 0, tensor rank 1)"),
                      HasSubstr("rank 2 (pipeline rank 0, context rank 1, tensor rank 0)")));
    EXPECT_THAT(written({.data = 2, .context = 2}),
                HasSubstr("rank 3 (pipeline rank 0, replica 1, context rank 1)"));
    const std::string alone = written({.pipeline = 4});
    EXPECT_THAT(alone, AllOf(HasSubstr(R"({"name":"rank 2"})"), Not(HasSubstr("mesh"))));

    const auto read_with = [&](const std::string& part, const std::string& instead) {
        std::string other = tensor;
        other.replace(other.find(part), part.size(), instead);
        write_file(folder / "other.json", other);
        return read_chrome_trace(folder / "other.json").mesh;
    };
    for (const auto& [part, instead] : {std::pair(R"("tensor":2)", R"("tensor":3)"),
                                        {R"("context":1)", R"("context":2)"},
                                        {R"("context":1)", R"("context":0)"}}) {
        try {
            (void)read_with(part, instead);
            FAIL() << instead << " is not a mesh for 4 ranks";
        } catch (const InputFileError& error) {
            EXPECT_THAT(error.what(), HasSubstr("for 4 ranks"));
        }
    }
    // Traces of earlier versions have no context ranks.
    EXPECT_EQ(read_with(R"("context":1,)", ""), (Mesh{.pipeline = 2, .tensor = 2}));
}

TEST(ChromeTraceReader, ReadsBackWhatWasWritten) {
    const TempFolder folder;
    std::vector<Schedule> schedules;
    for (const Kind& kind : every_kind(true)) schedules.push_back(generated(kind, 4, 6));
    std::mt19937 random(17);
    for (int i = 0; i < 30; ++i) schedules.push_back(random_schedule(random, {.most_ranks = 5}));
    for (const Schedule& schedule : schedules) {
        SCOPED_TRACE(describe(schedule));
        const Simulated run = simulated(schedule);
        const Timeline& timeline = run.simulation.timeline;
        write_chrome_trace(folder / "trace.json", timeline, run.programs, "a \"title\" <b>");
        const RecordedRun read = read_chrome_trace(folder / "trace.json");
        const RecordedRun direct = record(timeline, run.programs, "a \"title\" <b>");
        EXPECT_EQ(read.title, direct.title);
        EXPECT_EQ(read.barrier, direct.barrier);
        EXPECT_EQ(read.ticks_per_unit, 0);
        ASSERT_EQ(read.ranks, direct.ranks);
        ASSERT_EQ(read.slices.size(), direct.slices.size());
        for (size_t i = 0; i < read.slices.size(); ++i) {
            const Slice& a = read.slices[i];
            const Slice& b = direct.slices[i];
            ASSERT_EQ(whole_name(read, a), whole_name(direct, b));
            ASSERT_EQ(
                std::tuple(a.begin_ns, a.end_ns, a.cpu_ns, a.waited_for, a.order, a.rank, a.lane),
                std::tuple(b.begin_ns, b.end_ns, b.cpu_ns, b.waited_for, b.order, b.rank, b.lane));
        }
        // The trace has the sum over all uses.
        for (size_t rank = 0; rank < direct.memory.size(); ++rank) {
            std::map<int64_t, int64_t> sums;
            for (const auto& change : direct.memory[rank]) sums[change.at_ns] += change.bytes;
            for (const auto& change : read.memory[rank]) sums[change.at_ns] -= change.bytes;
            for (const auto& [at, sum] : sums) ASSERT_EQ(sum, 0) << rank << " at " << at;
        }
    }
}

/// The error for a file with this content.
std::string refused(const std::string& content) {
    const TempFolder folder;
    write_file(folder / "trace.json", content);
    try {
        static_cast<void>(read_chrome_trace(folder / "trace.json"));
    } catch (const InputFileError& error) {
        EXPECT_THAT(error.what(), HasSubstr("trace.json: "));
        EXPECT_THAT(error.what(), HasSubstr("use a file written by train_gpt --trace-dir"));
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        return error.what();
    }
    return "accepted";
}

TEST(ChromeTraceReader, SaysWhatIsWrongWithAFile) {
    const std::string head = R"({"otherData":{"title":"t"},"traceEvents":[)";
    const auto slice = [&](const std::string& pid, const std::string& ts, const std::string& args,
                           const std::string& lane = "compute") {
        return head + R"({"name":"0F0","cat":")" + lane + R"(","ph":"X","pid":)" + pid +
               R"(,"tid":0,"ts":)" + ts + R"(,"dur":1.5,"args":)" + args + "}]}";
    };
    const std::string args = R"({"action":0,"order":0,"cpu_us":1.5,"waited_for":"nothing"})";
    EXPECT_EQ(refused(slice("0", "0.5", args)), "accepted");
    EXPECT_THAT(refused(""), HasSubstr("at line 1, column 1"));
    EXPECT_THAT(refused(head + "\n"), HasSubstr("at line 2, column 1"));
    EXPECT_THAT(refused(head + "]}"), HasSubstr("no slices"));
    EXPECT_THAT(refused("{\"traceEvents\":[]}"), HasSubstr("is not a trace"));
    EXPECT_THAT(refused("[1, 2]"), HasSubstr("is not a trace"));
    EXPECT_THAT(refused(slice("-1", "0.5", args)), HasSubstr("an index of -1"));
    EXPECT_THAT(refused(slice("70000", "0.5", args)), HasSubstr("rank 70000"));
    EXPECT_THAT(refused(slice("65535", "0.5", args)), HasSubstr("rank 65535"));
    EXPECT_EQ(refused(slice("65534", "0.5", args)), "accepted");
    EXPECT_THAT(refused(slice("0", "-0.5", args)), HasSubstr("a time of -0.5 us"));
    EXPECT_THAT(refused(slice("0", "1e30", args)), HasSubstr("a time of"));
    EXPECT_THAT(refused(slice("0", "\"x\"", args)), HasSubstr("event 0"));
    EXPECT_THAT(refused(slice("0", "0.5", args, "disk")), HasSubstr("category \"disk\""));
    EXPECT_THAT(refused(slice("0", "0.5", R"({"action":0})")), HasSubstr("event 0"));
    EXPECT_THAT(refused(slice("0", "0.5", R"({"action":4000000000,"order":0,"cpu_us":1})")),
                HasSubstr("action 4000000000"));
    EXPECT_THROW(static_cast<void>(read_chrome_trace("/nonexistent/trace.json")), InputFileError);
}

}  // namespace
}  // namespace vocabpipe::testing
