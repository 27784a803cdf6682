// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule list, show, check and convert, run as a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tests/tool/run_program.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/schedule_file.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using ::testing::StartsWith;
using testing::TempFolder;
using testing::write_file;

const std::string kExamples = VOCABPIPE_EXAMPLE_SCHEDULES;

Outcome run(const std::string& arguments, const std::string& environment = "") {
    return testing::run_shell(environment + " '" VOCABPIPE_PROGRAM "' schedule " + arguments);
}

/// One line on stderr, nothing on stdout, this exit code.
void expect_refused(const Outcome& outcome, ExitCode code, const std::string& reason) {
    EXPECT_EQ(outcome.exit_code, static_cast<int>(code));
    EXPECT_EQ(outcome.output, "");
    EXPECT_THAT(outcome.error, StartsWith("vocabpipe: error: "));
    EXPECT_THAT(outcome.error, HasSubstr(reason));
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1);
}

TEST(ScheduleList, NamesEveryFamily) {
    const Outcome outcome = run("list");
    EXPECT_EQ(outcome.exit_code, 0);
    for (const Generator& family : generators()) {
        EXPECT_THAT(outcome.output, HasSubstr("\n" + std::string(family.name) + " "));
        EXPECT_THAT(testing::unwrapped(outcome.output), HasSubstr(std::string(family.summary)));
    }
}

TEST(ScheduleShow, DrawsOneRowPerRankAlongTime) {
    const Outcome outcome = run("show gpipe --pp 2 --microbatches 2 --costs 1,1 --width 120");
    EXPECT_EQ(outcome.error, "");
    // A column is a third of F: F and B take 12 ticks, S and T of all rows 8, E and G 1. Rank 1 is
    // busy for 2 (F + S + T + B) = 80 ticks = 6.67 F; rank 0 ends with the last G at 107 ticks.
    EXPECT_EQ(outcome.output,
              "gpipe none, 2 ranks, 2 microbatches\n"
              "times in the unit of the costs of a rank: F 1, B 1, V 0.33; V: S, and T, of an\n"
              "  even share of the rows; I, W: half of B; E, G: a quarter of V\n"
              "vocabulary mode none, the schedule as published, because no --vocab-mode is\n"
              "  given (train_gpt: one_barrier)\n\n"
              "        0              5\n"
              "rank 0 |F0-F1-..............B0-B1-\n"
              "rank 1 |...F0-S0T0F1-S1T1B0-B1-...\n\n"
              "rank  busy  idle  bubble  peak chunks  stages\n"
              "   0  4.33  4.58  51.4 %            2  0\n"
              "   1  6.67  2.25  25.2 %            2  1\n"
              "makespan 8.92, longest span of a rank 8.92, bubble 38.3 % (mean over ranks)\n");
}

// F and B take 5 units, three columns each: the last mark of the axis is where the last B ends.
TEST(ScheduleShow, MarksTheEndWhereAMarkIsDue) {
    EXPECT_THAT(run("show 1f1b --pp 1 --microbatches 2 --costs 5,5,0 --width 120").output,
                HasSubstr("\n        0           20\nrank 0 |F0-B0-F1-B1-\n"));
}

// Three F and three B of 3 units on rank 0, which begins 3 earlier and ends 3 later than rank 1.
TEST(ScheduleShow, AlignsFiguresRight) {
    EXPECT_THAT(run("show 1f1b --pp 2 --microbatches 3 --costs 3,3,0").output,
                HasSubstr("\nrank  busy  idle  bubble  peak chunks  stages\n"
                          "   0    18     6  25.0 %            2  0\n"
                          "   1    18     6  25.0 %            1  1\n"));
}

TEST(ScheduleShow, PrintsFormatsThatCanBeReadAgain) {
    const TempFolder folder;
    const std::string name = "show interleaved --pp 2 --microbatches 4 --chunks 2 ";
    for (const std::string mode : {"none", "one_barrier"}) {
        const Outcome csv = run(name + "--vocab-mode " + mode + " --format csv");
        const Outcome json = run(name + "--vocab-mode " + mode + " --format json");
        write_file(folder / "a.csv", csv.output);
        write_file(folder / "a.json", json.output);
        const Schedule from_csv = read_schedule(folder / "a.csv").schedule;
        const Schedule from_json = read_schedule(folder / "a.json").schedule;
        EXPECT_EQ(from_json.rank_of_stage, from_csv.rank_of_stage);
        EXPECT_EQ(from_json.microbatches, 4);
        EXPECT_EQ(from_json.passes == from_csv.passes, mode == "one_barrier")
            << "PyTorch's stages contain whole vocabulary layers";
    }
}

// The margin is in the unit of --costs: 210 - 20 is below 2 F, and the order is that of 190.
TEST(ScheduleShow, BuildsTheOrderForTheBackwardLessTheBroadcastMargin) {
    const auto order = [](const std::string& costs) {
        return run("show 1f1b --pp 4 --microbatches 8 --vocab-mode one_barrier --format csv "
                   "--costs " +
                   costs)
            .output;
    };
    const std::string of_190 = order("100,190,30");
    EXPECT_NE(order("100,210,30"), of_190);
    EXPECT_EQ(order("100,210,30 --broadcast-margin 20"), of_190);
}

TEST(ScheduleShow, TakesAFileAndAVocabMode) {
    const Outcome plain = run("show " + kExamples + "/dualpipe_v.csv --width 100");
    EXPECT_THAT(testing::unwrapped(plain.output),
                HasSubstr("dualpipe_v.csv none, 2 ranks, 4 microbatches"));
    const Outcome with =
        run("show " + kExamples + "/dualpipe_v.csv --vocab-mode one_barrier --format csv");
    EXPECT_THAT(with.output, StartsWith("vocabpipe 1,barriers one,input 0 25152 50304,"));
}

TEST(ScheduleShow, TakesTheTimesOfAProfile) {
    Profile profile;
    profile.model = {.layers = 2,
                     .hidden = 4,
                     .ffn_hidden = 4,
                     .heads = 1,
                     .seq_length = 2,
                     .micro_batch_size = 1,
                     .vocab = 8,
                     .layers_per_stage = {1, 1}};
    profile.rank_of_stage = {0, 1};
    profile.input = ShardMap::whole(8, 2, 0);
    profile.output = ShardMap::whole(8, 2, 1);
    profile.costs = TableCosts::uniform(2, 2, 2'000'000, 4'000'000, 0);
    profile.costs.latency_ns = 500'000;
    profile.sizes = {.tokens = 2, .hidden = 4};
    profile.sizes.stages.resize(2);
    profile.sizes.shards.resize(2);
    profile.persistent.resize(2);
    const TempFolder folder;
    write_profile(folder / "profile.json", profile);
    const Outcome outcome =
        run("show gpipe --pp 2 --microbatches 1 --costs " + (folder / "profile.json"));
    EXPECT_EQ(outcome.error, "");
    // F, message, F, B, message, B = 2 + 0.5 + 2 + 4 + 0.5 + 4.
    EXPECT_THAT(outcome.output, HasSubstr("makespan 13.00 ms"));
    EXPECT_THAT(
        run("show gpipe --pp 4 --microbatches 1 --costs " + (folder / "profile.json")).output,
        HasSubstr("costs scaled from a profile of 2 ranks"));
}

TEST(ScheduleShow, HasNoColourOutsideATerminal) {
    EXPECT_THAT(run("show 1f1b --pp 2 --microbatches 2").output, Not(HasSubstr("\x1b[")));
}

TEST(ScheduleShow, ColoursATerminalUnlessAskedNotTo) {
    // script(1) of util-linux, which every Debian has, gives the program a terminal.
    const TempFolder folder;
    const auto in_terminal = [&](const std::string& environment) {
        return testing::run_shell("TERM=xterm " + environment +
                                  " script -qec \"'" VOCABPIPE_PROGRAM
                                  "' schedule show 1f1b --pp 2 --microbatches 2\" " +
                                  (folder / "log"))
            .output;
    };
    EXPECT_THAT(in_terminal(""), HasSubstr("\x1b[30;44m"));
    EXPECT_THAT(in_terminal("NO_COLOR=1"), Not(HasSubstr("\x1b[")));
}

TEST(ScheduleShow, CutsWhatIsTooWideAndSaysSo) {
    const Outcome outcome = run("show 1f1b --pp 4 --microbatches 64 --width 80");
    EXPECT_THAT(outcome.output, HasSubstr("; see more with --width "));
    std::string line;
    for (std::stringstream lines(outcome.output); std::getline(lines, line);) {
        EXPECT_TRUE(!line.starts_with("rank 0 |") || line.size() <= 80U) << line;
    }
    EXPECT_THAT(run("show 1f1b --pp 2 --microbatches 2").output, Not(HasSubstr("--width")));
}

TEST(ScheduleShow, RefusesImpossibleOptions) {
    expect_refused(run("show interleavd --pp 2 --microbatches 4"), ExitCode::usage,
                   "did you mean interleaved?");
    expect_refused(run("show 1f1b --microbatches 4"), ExitCode::usage, "--pp: is required");
    expect_refused(run("show 1f1b --pp 2"), ExitCode::usage, "--microbatches: is required");
    expect_refused(run("show 1f1b --pp -2 --microbatches 4"), ExitCode::usage,
                   "--pp -2: must be at least 1");
    expect_refused(run("show 1f1b --pp 2 --microbatches 4 --chunks 2"), ExitCode::usage,
                   "--chunks 2: does not match 1f1b, which has 1");
    expect_refused(run("show 1f1b --pp 2 --microbatches 4 --vocab-mode two-barriers"),
                   ExitCode::usage, "did you mean two_barriers?");
    for (const std::string costs : {"0,1", "1,-2", "1,", "a,b", "99999999999,1"}) {
        expect_refused(run("show 1f1b --pp 2 --microbatches 4 --costs " + costs), ExitCode::usage,
                       "--costs " + costs);
    }
    expect_refused(run("show 1f1b --pp 2 --microbatches 4 --costs no.json"), ExitCode::input_file,
                   "no.json");
    expect_refused(run("show 1f1b --pp 2 --microbatches 4 --format png"), ExitCode::usage, "png");
    const std::string csv = kExamples + "/dualpipe_v.csv";
    expect_refused(run("show 1f1b --pp 70000 --microbatches 4"), ExitCode::usage,
                   "--pp 70000: must be at most 65535");
    expect_refused(run("show " + csv + " --vocab-mode none --vocab-size 0"), ExitCode::usage,
                   "--vocab-size 0: must be at least 1");
    expect_refused(run("show " + csv + " --chunks 2"), ExitCode::usage, "--chunks");
    expect_refused(run("show " + csv + " --broadcast-margin 2"), ExitCode::usage,
                   "--broadcast-margin: applies only to named schedules");
    expect_refused(run("show " + csv + " --microbatches 5"), ExitCode::usage, "has 4");
    expect_refused(run("show " + csv + " --pp 3"), ExitCode::input_file, "expected 3 ranks");
    expect_refused(run("show " + kExamples + "/uneven_shards.json --vocab-mode none"),
                   ExitCode::usage, "already has vocabulary passes");
}

TEST(ScheduleShow, SaysOnATerminalHowFarALongSearchIs) {
    const Outcome outcome = testing::run_shell(
        "script -qec \"'" VOCABPIPE_PROGRAM
        "' schedule show 1f1b --pp 8 --microbatches 64 --search-moves 4000000\" /dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, ::testing::ContainsRegex("searched [0-9]+ of 4000000 moves"));
    EXPECT_THAT(outcome.output, HasSubstr("1f1b none, 8 ranks, 64 microbatches"));
}

TEST(ScheduleShow, RefusesWhatWouldTakeTooLongBeforeItMakesAnything) {
    expect_refused(run("show 1f1b --pp 1000 --microbatches 10000"), ExitCode::usage,
                   "--microbatches 10000: with 1000 stages, a step has up to 70000000 passes, but "
                   "at most 20000000 are supported; use at most 2857");
    expect_refused(run("show 1f1b --pp 4 --microbatches 8 --search-moves 1099511627776"),
                   ExitCode::usage, "--search-moves");
    EXPECT_EQ(run("show 1f1b --pp 100 --microbatches 1000 --width 40").exit_code, 0);
}

TEST(ScheduleCheck, ProvesTheExamples) {
    const Outcome csv = run("check " + kExamples + "/dualpipe_v.csv");
    EXPECT_EQ(csv.exit_code, 0) << csv.error;
    EXPECT_THAT(
        testing::unwrapped(csv.output),
        MatchesRegex(".*dualpipe_v.csv: valid: 2 ranks, 4 stages, 4 microbatches, 37 passes "
                     "lowered to [0-9]+ actions, with whole vocabulary layers added; proven "
                     "free of deadlock "));
    const Outcome json = run("check " + kExamples + "/uneven_shards.json --pp 2");
    EXPECT_EQ(json.exit_code, 0) << json.error;
    EXPECT_THAT(json.output, HasSubstr("actions; proven free of deadlock"));
}

TEST(ScheduleCheck, RefusesWithTheReason) {
    const TempFolder folder;
    write_file(folder / "cycle.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
    expect_refused(run("check " + (folder / "cycle.csv")), ExitCode::input_file, ": a deadlock");
    write_file(folder / "old.csv", "0F0,0BW0\n");
    expect_refused(run("check " + (folder / "old.csv")), ExitCode::input_file,
                   "row 1, cell 2, \"0BW0\": BW is the full backward");
    const Outcome automatic = run("check --dialect auto " + (folder / "old.csv"));
    EXPECT_EQ(automatic.exit_code, 0);
    EXPECT_THAT(automatic.error, HasSubstr("old dialect because of row 1, cell 2"));
    expect_refused(run("check --dialect nwe " + (folder / "old.csv")), ExitCode::usage,
                   "did you mean new?");
    expect_refused(run("check " + (folder / "none.csv")), ExitCode::input_file, "No such file");
    expect_refused(run("check " + (folder / "")), ExitCode::usage, "must end in .csv or .json");
    write_file(folder / "broken.json", "{\"format\": ");
    expect_refused(run("check " + (folder / "broken.json")), ExitCode::input_file,
                   "not valid JSON");
}

TEST(ScheduleConvert, GoesBetweenFormatsAndDialects) {
    const TempFolder folder;
    const std::string example = kExamples + "/dualpipe_v.csv";
    EXPECT_EQ(run("convert " + example + " " + (folder / "a.json")).exit_code, 0);
    const Outcome converted = run("convert " + (folder / "a.json") + " " + (folder / "a.csv"));
    EXPECT_EQ(converted.exit_code, 0);
    EXPECT_THAT(converted.output, MatchesRegex(".*a\\.csv: [0-9]+ ranks?, [0-9]+ passes\n"));
    EXPECT_EQ(read_file(folder / "a.csv"), read_file(example));
    expect_refused(run("convert " + example + " " + (folder / "b.csv") + " --output-dialect old"),
                   ExitCode::usage, "which PyTorch's old dialect does not have");
    expect_refused(run("convert " + example + " " + (folder / "b.yaml")), ExitCode::usage,
                   "must end in .csv or .json");
    EXPECT_EQ(folder.names(), (std::set<std::string>{"a.csv", "a.json"}));

    EXPECT_EQ(run("convert " + (folder / "a.csv") + " " + (folder / "lowered.csv") +
                  " --output-dialect lowered")
                  .exit_code,
              0);
    EXPECT_THAT(read_file(folder / "lowered.csv"), HasSubstr("0WAIT_REDUCE_GRAD"));
    EXPECT_EQ(run("convert " + (folder / "lowered.csv") + " " + (folder / "b.csv")).exit_code, 0);
    EXPECT_EQ(read_file(folder / "b.csv"), read_file(example));

    run("show 1f1b --pp 2 --microbatches 2 --format json > " + (folder / "whole.json"));
    const Outcome whole = run("convert " + (folder / "whole.json") + " " + (folder / "whole.csv"));
    EXPECT_THAT(whole.error, HasSubstr("omits the passes of whole vocabulary layers"));
    EXPECT_EQ(read_file(folder / "whole.csv"), "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
    expect_refused(run("convert " + kExamples + "/uneven_shards.json " + (folder / "c.csv") +
                       " --output-dialect new"),
                   ExitCode::usage, "write the dialect vocabpipe, or JSON");
}

}  // namespace
}  // namespace vocabpipe
