// SPDX-License-Identifier: Apache-2.0
// What every command prints: how wide it is, that numbers of one thing agree, and that nothing from
// a file steers the terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    " --vocab-size 257 --num-layers 4 --hidden-size 32 --num-attention-heads 2 --seq-length 32 "
    "--global-batch-size 8 ";

/// A folder with data, a run of three steps that was saved, its reports, traces and profile.
class Output : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        folder_ = std::make_unique<TempFolder>();
        std::string text;
        for (int i = 0; i < 400; ++i) text += "Line " + std::to_string(i) + " of a small text.\n";
        write_file(*folder_ / "text.txt", text);
        ASSERT_EQ(tool("data prepare --input text.txt --output data").exit_code, 0);
        first_run_ = train(
            "--ranks 2 --train-iters 3 --save run --trace-dir traces "
            "--report report.json --profile profile.json --split 1 "
            "--param-group '*wte*:weight_decay=0'");
        ASSERT_EQ(first_run_.exit_code, 0) << first_run_.error;
    }
    static void TearDownTestSuite() { folder_.reset(); }

    static Outcome in_folder(const std::string& command) {
        return run_shell("cd '" + (*folder_ / "") + "' && " + command);
    }
    static Outcome tool(const std::string& arguments) {
        return in_folder("'" VOCABPIPE_PROGRAM "' " + arguments);
    }
    static Outcome train(const std::string& arguments) {
        return in_folder("'" TRAIN_GPT_PROGRAM "' --transport threads --data-path data" + kModel +
                         arguments);
    }
    static void expect_narrow(const std::string& text, size_t columns = 80) {
        EXPECT_NE(text, "") << "nothing to look at";
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            const bool step = line.starts_with(" iteration ") || line.starts_with(" validation ");
            EXPECT_LE(line.size(), step ? 120 : columns) << line;
        }
    }

    static std::unique_ptr<TempFolder> folder_;
    static Outcome first_run_;
};
std::unique_ptr<TempFolder> Output::folder_;
Outcome Output::first_run_;

TEST_F(Output, OfEveryCommandFits80Columns) {
    const std::string schedules(VOCABPIPE_EXAMPLE_SCHEDULES);
    ASSERT_EQ(in_folder("cp '" + schedules + "'/* .").exit_code, 0);
    for (const char* command :
         {"schedule list",
          "schedule show v-half --pp 4 --microbatches 8 --vocab-mode one_barrier",
          "schedule show looped-bfs --pp 2 --chunks 32 --microbatches 4",
          "schedule show 1f1b --pp 2 --microbatches 8 --costs profile.json",
          "schedule check dualpipe_v.csv",
          "schedule check uneven_shards.json",
          "simulate zb-v --pp 8 --microbatches 24 --vocab-mode two_barriers",
          "simulate 1f1b --pp 2 --microbatches 8 --vocab-mode one_barrier --costs profile.json",
          "timeline 1f1b zb-v,vocab-mode=interlaced traces/1f1b-one_barrier-p2.json --pp 8 "
          "--microbatches 24 --html page.html",
          "explain 1f1b --pp 4 --microbatches 8 --rank 0 --at 2000",
          "explain v-half --vocab-mode one_barrier --pp 2 --microbatches 8 --costs profile.json "
          "--rank 1 --at 0.1ms",
          "plan --model llama-3-8b --gpus 8 --gpu h100 --seq-length 4096 --global-batch-size 32 "
          "--schedules 1f1b,group-interleaved,v-half",
          "plan --profile profile.json --gpus 4 --global-batch-size 8 --memory-gib 1 --top 3",
          "compare report.json",
          "compare --simulated report.json report.json report.json",
          "checkpoint inspect run",
          "checkpoint inspect run/step-00000003/model.safetensors",
          "checkpoint verify run",
          "checkpoint verify run/step-00000003/model.safetensors",
          "checkpoint convert run model",
          "checkpoint verify model",
          "checkpoint inspect model",
          "data inspect data",
          "data inspect data --split 9,1",
          "data inspect 0.7 data 0.3 data --vocab-size 300",
          "data prepare --input text.txt --output again --document-separator line",
          "profile --transport threads --ranks 2 --output p.json --vocab-size 257 --num-layers 4 "
          "--hidden-size 32 --num-attention-heads 2 --seq-length 32 --global-batch-size 8 "
          "--steps 2 --recompute-granularity full",
          "profile --transport threads --ranks 2 --overlap o.json --vocab-size 257 --num-layers 4 "
          "--hidden-size 32 --num-attention-heads 2 --seq-length 32 --global-batch-size 8 "
          "--steps 2"}) {
        SCOPED_TRACE(command);
        const Outcome outcome = tool(command);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        expect_narrow(outcome.output);
    }
}

TEST_F(Output, OfTrainingFits80ColumnsAndItsStepLines120) {
    expect_narrow(first_run_.output);
    EXPECT_THAT(first_run_.output, HasSubstr("\n iteration 3/3 | lm loss "));
    for (const char* flags :
         {"--ranks 4 --train-iters 4 --pipeline-model-parallel-size 2 --bf16 --async-save --save s "
          "--eval-interval 2 --eval-iters 1 --valid-data-path data --train-data-path data "
          "--schedule-costs auto --recompute-granularity full",
          "--ranks 4 --train-iters 4 --load run --clip-grad 0.5 --lr 1e-3 --data-path data",
          "--ranks 2 --schedule interleaved --chunks 2 --train-iters 1 --data-path data"}) {
        SCOPED_TRACE(flags);
        const Outcome outcome =
            in_folder("'" TRAIN_GPT_PROGRAM "' --transport threads" + kModel + flags);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        expect_narrow(outcome.output);
    }
}

TEST_F(Output, PredictsTheSameMemoryAtStartAndAtTheEnd) {
    const std::string& text = first_run_.output;
    const std::string line = "process of all ranks: predicted ";
    const size_t at = text.find(line);
    ASSERT_NE(at, std::string::npos) << text;
    const std::string start = text.substr(at, text.find(" MiB", at) - at);
    EXPECT_THAT(text, HasSubstr(start + " MiB\n"));
    EXPECT_THAT(text, HasSubstr(start + " MiB, measured "));
    // ... and what is compared is the process, on both sides.
    const auto report = nlohmann::json::parse(read_file(*folder_ / "report.json"));
    const auto& ranks = report.at("ranks");
    EXPECT_EQ(ranks[0].at("predicted_peak_bytes"), ranks[1].at("predicted_peak_bytes"));
    EXPECT_EQ(ranks[0].at("measured_peak_bytes"), ranks[1].at("measured_peak_bytes"));
}

TEST_F(Output, OfARunOfOneStepIsThatStep) {
    const Outcome one = train("--ranks 2 --train-iters 1 --report one.json");
    ASSERT_EQ(one.exit_code, 0) << one.error;
    EXPECT_THAT(one.output, ContainsRegex("\ntokens/s [1-9][0-9]*[.][0-9] "));
    const auto report = nlohmann::json::parse(read_file(*folder_ / "one.json"));
    EXPECT_GT(report.at("tokens_per_second"), 0);
    EXPECT_GT(report.at("measured_step_seconds"), 0);
    EXPECT_LT(report.at("simulated_bubble"), 0.99);
    EXPECT_GT(report.at("ranks")[0].at("busy_share"), 0);
}

TEST_F(Output, SteersNoTerminalWithWhatAFileSays) {
    const std::string escape = "\x1b[31m\x1b]0;title\x07\xc2\x9b";
    auto trace = nlohmann::json::parse(read_file(*folder_ / "traces/1f1b-one_barrier-p2.json"));
    const std::string plain = trace.dump();
    std::string steering = plain;
    const std::string title = trace.at("otherData").at("title");
    const std::string codes = "\\u001b[31m\\u009b\\u0007";  // as JSON writes them
    for (size_t at = 0; (at = steering.find(title, at)) != std::string::npos;
         at += codes.size() + title.size()) {
        steering.insert(at, codes);
    }
    ASSERT_NE(steering, plain);
    write_file(*folder_ / "steering.json", steering);
    auto report = nlohmann::json::parse(read_file(*folder_ / "report.json"));
    report["schedule"] = "1f1b" + escape;
    write_file(*folder_ / "steering-report.json", report.dump());
    for (const char* command :
         {"timeline steering.json --html steering.html", "compare steering-report.json"}) {
        SCOPED_TRACE(command);
        const Outcome outcome = tool(command);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        for (const char* control : {"\x1b", "\x07", "\xc2\x9b"}) {
            EXPECT_THAT(outcome.output + outcome.error, Not(HasSubstr(control)));
        }
        EXPECT_THAT(outcome.output, HasSubstr("1f1b"));
    }
}

// The cut of a long word keeps what the sentence goes on with.
TEST_F(Output, CutsALongNameButNotTheColonBehindIt) {
    const std::string name(300, 'x');
    EXPECT_THAT(tool("checkpoint inspect " + name + ".safetensors").error,
                HasSubstr(std::string(200, 'x') + "...: cannot open"));
}

// Byte 200 is the second one of the hundredth é.
TEST_F(Output, CutsALongNameBetweenCharacters) {
    std::string most = "x";
    for (int i = 0; i < 99; ++i) most += "é";
    EXPECT_THAT(tool("checkpoint inspect " + most + "éééé.safetensors").error,
                HasSubstr(most + "...: cannot open"));
}

// A file where a folder is to be is a wrong command line, not a failure of the run.
TEST_F(Output, RefusesAFileWhereAFolderIsToBe) {
    write_file(*folder_ / "a_file", "here");
    for (const std::string flag : {"--save", "--tensorboard-dir", "--trace-dir"}) {
        for (const std::string path : {"a_file", "a_file/below"}) {
            const Outcome outcome = train("--ranks 1 --train-iters 1 " + flag + " " + path);
            EXPECT_EQ(outcome.exit_code, 2) << outcome.error;
            EXPECT_THAT(outcome.error, HasSubstr(flag + " " + path));
            EXPECT_THAT(outcome.error, HasSubstr("is a file, but must be a folder"));
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
