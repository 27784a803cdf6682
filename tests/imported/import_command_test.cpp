// SPDX-License-Identifier: Apache-2.0
// `vocabpipe import` and `explain` on what PyTorch, Megatron-Core and OpenTelemetry wrote
// (make_torch_traces.py, make_megatron_runs.py).
#include "tests/imported/nsys_file.hpp"
#include "tests/tool/run_program.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kProgram = "'" VOCABPIPE_PROGRAM "' ";

/// The files of a run, last rank first.
std::string files_of(const std::string& run, int ranks) {
    std::string files;
    for (int rank = ranks; rank-- > 0;) {
        files += " '" VOCABPIPE_IMPORTED_RUNS "/" + run + "-" + std::to_string(ranks) + "-rank" +
                 std::to_string(rank) + ".json.gz'";
    }
    return files;
}

/// Names of the passes of each rank in the order of their begins.
std::vector<std::vector<std::string>> passes_of(const RecordedRun& run) {
    std::vector<std::vector<std::string>> lists(static_cast<size_t>(run.ranks));
    for (const RecordedRun::Slice& slice : run.slices) {
        if (slice.lane != Lane::compute) continue;
        lists[slice.rank].push_back(run.names[slice.name] + std::to_string(slice.number));
    }
    return lists;
}

/// Names of the passes of a schedule's ranks, but for those of vocabulary layers.
std::vector<std::vector<std::string>> stage_passes(const Schedule& schedule) {
    std::vector<std::vector<std::string>> lists;
    for (const std::vector<Pass>& list : schedule.passes) {
        std::vector<std::string>& names = lists.emplace_back();
        for (const Pass& pass : list) {
            if (traits(pass.op).has_stage) names.push_back(to_string(pass));
        }
    }
    return lists;
}

TEST(ImportCommand, FindsThePassesThatPyTorchRanInTheOrderOfTheirSchedule) {
    struct Case {
        std::string name;
        int ranks, chunks;
    };
    for (const Case& run : {Case{"gpipe", 2, 1}, Case{"1f1b", 2, 1}, Case{"zb-h1", 4, 1},
                            Case{"interleaved-zb", 4, 2}}) {
        const TempFolder folder;
        const Outcome outcome = run_in(folder, kProgram + "import" + files_of(run.name, run.ranks) +
                                                   " --trace run.json --pass-times times.csv");
        ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
        EXPECT_THAT(outcome.output, HasSubstr("8 microbatches, 2 steps")) << run.name;
        const Schedule schedule = generator(run.name).make(
            {.ranks = run.ranks, .microbatches = 8, .rule = {.chunks = run.chunks}});
        EXPECT_EQ(passes_of(read_chrome_trace(folder / "run.json")), stage_passes(schedule))
            << run.name;
        const std::string again = run.name + " --pp " + std::to_string(run.ranks) +
                                  " --microbatches 8" + (run.chunks > 1 ? " --chunks 2" : "") +
                                  " --pass-times times.csv";
        EXPECT_THAT(run_in(folder, kProgram + "simulate " + again).output, HasSubstr("\nstep "));
        EXPECT_EQ(run_in(folder, kProgram + "timeline run.json --html run.html").exit_code, 0);
    }
}

TEST(ImportCommand, FindsThePassesThatMegatronCoreRanInItsSpansAndTimers) {
    for (const int ranks : {2, 4}) {
        const TempFolder folder;
        const std::string run = "'" VOCABPIPE_IMPORTED_RUNS "/megatron-" + std::to_string(ranks);
        std::string spans;
        for (int rank = ranks; rank-- > 0;) {
            spans += " " + run + "-rank" + std::to_string(rank) + ".jsonl.gz'";
        }
        const Outcome outcome = run_in(
            folder,
            kProgram + "import --microbatches 8 --trace run.json --pass-times spans.csv" + spans);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
        EXPECT_THAT(outcome.output, HasSubstr("8 microbatches, 2 steps"));
        const Schedule schedule = generator("1f1b").make({.ranks = ranks, .microbatches = 8});
        EXPECT_EQ(passes_of(read_chrome_trace(folder / "run.json")), stage_passes(schedule));
        ASSERT_EQ(run_in(folder,
                         kProgram + "import --microbatches 8 --pass-times log.csv " + run + ".log'")
                      .exit_code,
                  0);
        // The same passes; timers do not count waits for late messages.
        const std::regex times(",[0-9]+\n");
        EXPECT_EQ(std::regex_replace(read_file(folder / "log.csv"), times, "\n"),
                  std::regex_replace(read_file(folder / "spans.csv"), times, "\n"));
    }
}

TEST(ImportCommand, RecordsNoPassBeforeItsInputWasSent) {
    const TempFolder folder;
    ASSERT_EQ(
        run_in(folder, kProgram + "import" + files_of("zb-h1", 4) + " --trace run.json").exit_code,
        0);
    const RecordedRun run = read_chrome_trace(folder / "run.json");
    for (const RecordedRun::Slice& slice : run.slices) {
        if (slice.waited_for == RecordedRun::kNone) continue;
        EXPECT_LE(run.slices[slice.waited_for].end_ns, slice.begin_ns);
    }
}

TEST(ImportCommand, ExplainsARunOfPyTorchFromItsFilesAndFromItsTimeline) {
    const TempFolder folder;
    const std::string files = files_of("zb-h1", 4);
    const Outcome direct = run_in(folder, kProgram + "explain" + files);
    EXPECT_EQ(direct.exit_code, 0) << direct.error;
    EXPECT_THAT(unwrapped(direct.output),
                AllOf(HasSubstr("on 4 ranks, which compute"), HasSubstr("critical path"),
                      HasSubstr("replay of these passes in the simulator"),
                      HasSubstr("no order of the same passes"), HasSubstr("schedule"),
                      HasSubstr("interleaved-zb")));
    ASSERT_EQ(run_in(folder, kProgram + "import" + files + " --trace run.json").exit_code, 0);
    const Outcome written = run_in(folder, kProgram + "explain run.json");
    EXPECT_EQ(written.output, direct.output);
    const Outcome shared =
        run_in(folder, kProgram + "explain run.json --output-layer-share 0.3 --html page.html");
    EXPECT_THAT(unwrapped(shared.output),
                AllOf(HasSubstr("output layer and loss: 30.0 % of the last stage"),
                      HasSubstr("one_barrier")));
    EXPECT_THAT(
        read_file(folder / "page.html"),
        AllOf(HasSubstr("<path fill=\"#4878d0\""), HasSubstr("<span>rank 3</span>"),
              HasSubstr("title=\"backward messages "), HasSubstr("<span>critical path</span>"),
              HasSubstr("<span>without these gaps</span>"),
              HasSubstr("output layer and loss: 30.0 % of the last stage."),
              HasSubstr("<td>interleaved-zb</td>"), HasSubstr("<th>one_barrier</th>")));
    EXPECT_THAT(run_in(folder, kProgram + "explain" + files + " --rank 3 --at 1us").output,
                HasSubstr("rank 3 is idle before 3F0"));
}

TEST(ImportCommand, ReadsSpansTablesAndLogsByTheirContents) {
    const TempFolder folder;
    // One rank, one stage, two microbatches, 10 ns of F and 20 of B; made up.
    std::string spans, rows = "dp_rank,stage,step,optype,start_ts,duration,seq_id,mb_id,gmc\n";
    for (int i = 0; i < 4; ++i) {
        const bool forward = i % 2 == 0;
        const int begin = 30 * (i / 2) + (forward ? 0 : 10);
        const std::string name = forward ? "forward-compute" : "backward-compute";
        spans += (i == 0 ? "" : ",") + (R"({"name":")" + name) + R"(","startTimeUnixNano":")" +
                 std::to_string(begin) + R"(","endTimeUnixNano":")" +
                 std::to_string(begin + (forward ? 10 : 20)) + R"("})";
        rows += "0,0,7," + name + "," + std::to_string(begin) + "e-9," + (forward ? "1" : "2") +
                "e-8," + std::to_string(i / 2) + "," + std::to_string(i / 2) + ",0\n";
    }
    write_file(folder / "spans.json",
               R"({"resourceSpans":[{"scopeSpans":[{"spans":[)" + spans + "]}]}]}");
    write_file(folder / "rows.csv", rows);
    write_file(folder / "log.txt",
               "times across ranks (ms):\n  forward-compute:\n     rank  0: 0.00002\n"
               "  backward-compute:\n     rank  0: 0.00004\n");
    write_nsys_file(
        folder / "nsys.sqlite",
        "INSERT INTO NVTX_EVENTS SELECT b, b + 10, 59, NULL, 'forward-compute', 5, NULL, 0 FROM "
        "(SELECT 0 AS b UNION SELECT 30);"
        "INSERT INTO NVTX_EVENTS SELECT b, b + 20, 59, NULL, 'backward-compute', 5, NULL, 0 FROM "
        "(SELECT 10 AS b UNION SELECT 40);");
    for (const char* const file : {"spans.json --microbatches 2", "rows.csv",
                                   "nsys.sqlite --microbatches 2", "log.txt --microbatches 2"}) {
        const Outcome outcome = run_in(folder, kProgram + "import --pass-times times.csv " + file);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        const std::string times = read_file(folder / "times.csv");
        EXPECT_THAT(times, AllOf(HasSubstr("0,F,0,10\n"), HasSubstr("0,B,0,20\n"))) << file;
    }
    EXPECT_THAT(run_in(folder, kProgram + "explain spans.json --microbatches 2").output,
                HasSubstr("against 60 ns"));
    const Outcome no_timeline =
        run_in(folder, kProgram + "import log.txt --microbatches 2 --trace t.json");
    EXPECT_EQ(no_timeline.exit_code, 2);
    EXPECT_THAT(no_timeline.error, HasSubstr("has sums of times and no timeline"));
}

TEST(ImportCommand, RefusesBadInputInOneLine) {
    const TempFolder folder;
    const auto refused = [&](const std::string& command, int code, const std::string& what) {
        const Outcome outcome = run_in(folder, kProgram + command);
        EXPECT_EQ(outcome.exit_code, code) << command;
        EXPECT_THAT(outcome.error, HasSubstr(what)) << command;
        EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
    };
    const std::string one = " '" VOCABPIPE_IMPORTED_RUNS "/1f1b-2-rank1.json.gz'";
    refused("import" + one, 2, "requires an output");
    refused("import" + one + " --trace t.json", 3, "but no file is of rank 0");
    refused("import" + one + one + " --trace t.json", 3, "but no file is of rank 0");
    refused("import" + files_of("1f1b", 2) + " --trace t.json --step 2", 2,
            "--step 2: the files have the steps 0 to 1");
    refused("import" + files_of("1f1b", 2) + " --trace t.json --rules none", 2,
            "--rules none: is neither a file nor one of megatron, operations, torch");
    refused("import" + files_of("1f1b", 2) + " --trace t.json --rules megatron", 3,
            "has no pass among ranges such as");
    write_file(folder / "rules.toml", "pass = [\"{op}\"]\nrecieve = [\"x\"]\n");
    refused("import" + files_of("1f1b", 2) + " --trace t.json --rules ./rules.toml", 3,
            "recieve: is no key of rules");
    write_file(folder / "text.json", "{}");
    refused("import text.json --trace t.json", 3, "text.json: is of no known kind");
    write_file(folder / "times.csv", "other\n");
    refused("import" + files_of("1f1b", 2) + " --pass-times times.csv", 2, "times.csv");
    refused("explain 1f1b --pp 2 --microbatches 2 --html page.html", 2,
            "--html: is of recorded runs, but 1f1b is simulated; draw it with vocabpipe timeline");
    refused("explain" + files_of("1f1b", 2) + " --html page.html --rank 0 --at 1us", 2,
            "--html: shows the whole step");
    refused("explain 1f1b --pp 2 --microbatches 2 --step 1", 2, "--step: is of recorded runs");
    refused("explain" + files_of("1f1b", 2) + " --pp 2", 2, "--pp: is for schedules");
}

}  // namespace
}  // namespace vocabpipe::testing
