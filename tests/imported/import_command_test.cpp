// SPDX-License-Identifier: Apache-2.0
// `vocabpipe import` and `explain` on traces that PyTorch wrote (make_torch_traces.py).
#include "tests/tool/run_program.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
        files += " '" VOCABPIPE_TORCH_TRACES "/" + run + "-" + std::to_string(ranks) + "-rank" +
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
        std::vector<std::vector<std::string>> expected;
        for (const std::vector<Pass>& list : schedule.passes) {
            std::vector<std::string>& names = expected.emplace_back();
            for (const Pass& pass : list) {
                if (traits(pass.op).has_stage) names.push_back(to_string(pass));
            }
        }
        EXPECT_EQ(passes_of(read_chrome_trace(folder / "run.json")), expected) << run.name;
        const std::string again = run.name + " --pp " + std::to_string(run.ranks) +
                                  " --microbatches 8" + (run.chunks > 1 ? " --chunks 2" : "") +
                                  " --pass-times times.csv";
        EXPECT_THAT(run_in(folder, kProgram + "simulate " + again).output, HasSubstr("\nstep "));
        EXPECT_EQ(run_in(folder, kProgram + "timeline run.json --html run.html").exit_code, 0);
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
    const Outcome shared = run_in(folder, kProgram + "explain run.json --output-layer-share 0.3");
    EXPECT_THAT(unwrapped(shared.output),
                AllOf(HasSubstr("output layer and loss: 30.0 % of the last stage"),
                      HasSubstr("one_barrier")));
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
    for (const char* const file :
         {"spans.json --microbatches 2", "rows.csv", "log.txt --microbatches 2"}) {
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
    const std::string one = " '" VOCABPIPE_TORCH_TRACES "/1f1b-2-rank1.json.gz'";
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
    refused("explain 1f1b --pp 2 --microbatches 2 --step 1", 2, "--step: is of recorded runs");
    refused("explain" + files_of("1f1b", 2) + " --pp 2", 2, "--pp: is for schedules");
}

}  // namespace
}  // namespace vocabpipe::testing
