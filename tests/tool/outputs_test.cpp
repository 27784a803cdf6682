// SPDX-License-Identifier: Apache-2.0
// No output flag of any program replaces what the command reads or what somebody else wrote.
#include "tests/tool/run_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::TempFolder;

namespace fs = std::filesystem;

struct Row {
    std::string name;
    std::string command;             ///< PROGRAM arguments, in a folder with the inputs below
    std::string flag;                ///< in messages
    std::vector<std::string> files;  ///< that it writes; each is replaced in turn
    std::string input;               ///< that it reads; "": nothing that could be named as output
};

const std::string kTrain =
    "'" TRAIN_GPT_PROGRAM
    "' --transport threads --ranks 2 --data-path set --vocab-size 257 --num-layers 2 --hidden-size "
    "16 --num-attention-heads 2 --seq-length 16 --global-batch-size 2 --train-iters 1 ";
const std::string kTool = "'" VOCABPIPE_PROGRAM "' ";

const std::vector<Row>& rows() {
    static const std::vector<Row> all{
        {"Metrics", kTrain + "--metrics out.jsonl", "--metrics", {"out.jsonl"}, "set.bin"},
        {"Report", kTrain + "--report out.json", "--report", {"out.json"}, "set.bin"},
        {"Profile", kTrain + "--profile out.json", "--profile", {"out.json"}, "set.idx"},
        {"Traces",
         kTrain + "--trace-dir traces",
         "--trace-dir",
         {"traces/1f1b-one_barrier-p2.json", "traces/1f1b-one_barrier-p2.simulated.json"},
         "set.bin"},
        {"Config",
         kTrain + "--config run.toml --report out.json",
         "--report",
         {"out.json"},
         "run.toml"},
        {"CostFile",
         kTrain + "--schedule-costs costs.json --profile out.json",
         "--profile",
         {"out.json"},
         "costs.json"},
        {"Prepare",
         kTool + "data prepare --input text.txt --output out",
         "--output",
         {"out.bin", "out.idx"},
         "text.txt"},
        {"PrepareVocabulary",
         kTool + "data prepare --input text.txt --output out --tokenizer sentencepiece "
                 "--vocab-size 300",
         "--output",
         {"out.bin", "out.idx", "out.model"},
         "text.txt"},
        {"Convert", kTool + "schedule convert in.csv out.json", "OUT", {"out.json"}, "in.csv"},
        {"ConvertToCsv", kTool + "schedule convert in.csv out.csv", "OUT", {"out.csv"}, "in.csv"},
        {"SimulateTrace",
         kTool + "simulate in.csv --trace out.json",
         "--trace",
         {"out.json"},
         "in.csv"},
        {"SimulateHtml",
         kTool + "simulate in.csv --html out.html",
         "--html",
         {"out.html"},
         "in.csv"},
        {"TimelineHtml",
         kTool + "timeline in.csv --html out.html",
         "--html",
         {"out.html"},
         "in.csv"},
        {"TimelineSvg", kTool + "timeline in.csv --svg out.svg", "--svg", {"out.svg"}, "in.csv"},
        {"TimelineTrace",
         kTool + "timeline in.csv --trace out.json",
         "--trace",
         {"out.json"},
         "in.csv"},
        {"TimelineCosts",
         kTool + "timeline 1f1b --pp 2 --microbatches 2 --vocab-mode one_barrier "
                 "--costs costs.json --html out.html",
         "--html",
         {"out.html"},
         "costs.json"},
        {"PlanHtml",
         kTool + "plan --profile costs.json --gpus 2 --global-batch-size 4 --memory-gib 80 "
                 "--schedules 1f1b --html out.html",
         "--html",
         {"out.html"},
         "costs.json"},
        {"ProfileOutput",
         kTool + "profile --transport threads --ranks 2 --steps 1 --num-layers 2 --hidden-size 16 "
                 "--num-attention-heads 2 --seq-length 16 --vocab-size 257 --global-batch-size 2 "
                 "--output out.json",
         "--output",
         {"out.json"},
         ""},
        {"ProfileOverlap",
         kTool + "profile --transport threads --ranks 2 --steps 1 --num-layers 2 --hidden-size 16 "
                 "--num-attention-heads 2 --seq-length 16 --vocab-size 257 --global-batch-size 2 "
                 "--overlap out.json",
         "--overlap",
         {"out.json"},
         ""},
    };
    return all;
}

class Outputs : public ::testing::TestWithParam<Row> {
protected:
    Outputs() {
        std::string text;
        for (int i = 0; i < 500; ++i) text += "Rank " + std::to_string(i) + " has waited. ";
        testing::write_file(folder_ / "text.txt", text);
        testing::write_file(folder_ / "run.toml", "seed = 1\n");
        const Outcome made =
            run(kTool + "data prepare --input text.txt --output set && " + kTool +
                "schedule show 1f1b --pp 2 --microbatches 2 --format csv > in.csv && " + kTrain +
                "--profile costs.json");
        EXPECT_EQ(made.exit_code, 0) << made.error;
    }
    [[nodiscard]] Outcome run(const std::string& command) const {
        return testing::run_shell("cd '" + (folder_ / "") + "' && " + command);
    }
    /// The command ends with 2 and one line that says `why`, and all files are as before.
    void expect_refused(const std::string& why) const {
        std::vector<std::string> before;
        for (const std::string& file : files()) before.push_back(content(file));
        const Outcome refused = run(GetParam().command);
        EXPECT_EQ(refused.exit_code, 2) << refused.output << refused.error;
        EXPECT_THAT(refused.error, HasSubstr(GetParam().flag + " "));
        EXPECT_THAT(refused.error, HasSubstr(why));
        for (size_t i = 0; i < files().size(); ++i) {
            EXPECT_TRUE(content(files()[i]) == before[i]) << files()[i];
        }
    }
    [[nodiscard]] std::vector<std::string> files() const {
        std::vector<std::string> all = GetParam().files;
        if (!GetParam().input.empty()) all.push_back(GetParam().input);
        return all;
    }
    [[nodiscard]] std::string content(const std::string& file) const {
        return fs::exists(folder_ / file) ? testing::read_file(folder_ / file) : "none";
    }
    TempFolder folder_;
};

TEST_P(Outputs, ReplaceTheirOwnButNoInputAndNothingOfOthers) {
    for (int again = 0; again < 2; ++again) {
        const Outcome done = run(GetParam().command);
        ASSERT_EQ(done.exit_code, 0) << done.error;
    }
    for (const std::string& file : GetParam().files) {
        SCOPED_TRACE(file);
        ASSERT_TRUE(fs::exists(folder_ / file));
    }
    for (const std::string& file : GetParam().files) {
        // The index makes the other files of a token file known: without it they are not.
        const bool index = file.ends_with(".idx");
        testing::write_file(folder_ / file, "{\"a\": [1, 2], \"of\": \"somebody else\"}\n");
        if (file.ends_with(".bin")) fs::remove(folder_ / "out.idx");
        SCOPED_TRACE(file);
        expect_refused("already exists and is not ");
        fs::remove(folder_ / file);
        if (index || GetParam().input.empty()) continue;
        fs::create_symlink(folder_ / GetParam().input, folder_ / file);
        expect_refused("is also an input of this command and would be replaced");
        fs::remove(folder_ / file);
    }
}

INSTANTIATE_TEST_SUITE_P(EveryFlag, Outputs, ::testing::ValuesIn(rows()),
                         [](const ::testing::TestParamInfo<Row>& info) { return info.param.name; });

TEST(Outputs, OfTwoFlagsAreTwoFiles) {
    const TempFolder folder;
    const Outcome refused =
        testing::run_shell("cd '" + (folder / "") + "' && " + kTool +
                           "simulate 1f1b --pp 2 --microbatches 2 --html a.html --trace ./a.html");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.error, HasSubstr("is also the output of --trace"));
    EXPECT_FALSE(fs::exists(folder / "a.html"));
}

}  // namespace
}  // namespace vocabpipe
