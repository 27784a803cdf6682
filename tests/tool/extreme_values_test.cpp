// SPDX-License-Identifier: Apache-2.0
// Whatever number a flag is given, a command ends with a documented code, and names what it
// refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/full_run.hpp"
#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* kTool = VOCABPIPE_PROGRAM;
constexpr const char* kTrainGpt = TRAIN_GPT_PROGRAM;
constexpr const char* kModel =
    " --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --vocab-size 257";

const std::vector<std::string> kValues{"0",
                                       "-1",
                                       "1",
                                       "1.5",
                                       "2147483647",
                                       "2147483648",
                                       "4294967296",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "1e308",
                                       "1e-320",
                                       "nan",
                                       "inf",
                                       "-inf",
                                       "0x10",
                                       "1,000",
                                       "''",
                                       "\u0663"};

/// A command, of which subcommand, and what makes it work. Files that it reads are in the folder.
struct ExtremeCase {
    std::string name, subcommand, flags;
    friend void PrintTo(const ExtremeCase& c, std::ostream* out) { *out << c.subcommand; }
};

/// Flags that may ask for more than anybody waits for: who works on says so.
const std::set<std::string> kEndless{"--train-iters", "--train-samples", "--max-new-tokens",
                                     "--steps"};

class ExtremeValues : public ::testing::TestWithParam<ExtremeCase> {
protected:
    /// One folder for all commands, with data and a saved model.
    static void SetUpTestSuite() {
        folder_ = new TempFolder;
        std::ofstream text(*folder_ / "text.txt");
        for (int i = 0; i < 400; ++i) text << "It was the best of times, it was the worst.\n\n";
        text.close();
        ASSERT_EQ(run(std::string(kTool) +
                      " data prepare --input text.txt --output data --tokenizer bytes")
                      .exit_code,
                  0);
        ASSERT_EQ(run(std::string(kTrainGpt) + " --data-path data" + kModel +
                      " --micro-batch-size 1 --global-batch-size 2 --train-iters 1 --save saved")
                      .exit_code,
                  0);
    }
    static void TearDownTestSuite() { delete std::exchange(folder_, nullptr); }

    static Outcome run(const std::string& command) {
        return run_shell("cd '" + (*folder_ / "") + "' && export OMP_NUM_THREADS=1 && " + command);
    }

    static TempFolder* folder_;  // GoogleTest's fixtures have no other place for it
};
TempFolder* ExtremeValues::folder_ = nullptr;

/// Flags whose value the help calls a number.
std::vector<std::string> numeric_flags(const std::string& help) {
    static const std::set<std::string> kOtherWords{"A",    "COSTS",  "FILE",  "FOLDER",   "GROUP",
                                                   "ID",   "LAYOUT", "MODE",  "NAME",     "PATH",
                                                   "RULE", "PREFIX", "START", "SCHEDULE", "TEXT"};
    static const std::regex kFlag(R"(^  (?:-\w, )?(--[a-z0-9-]+) ([A-Z]+))");
    std::vector<std::string> flags;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
        std::smatch found;
        if (std::regex_search(line, found, kFlag) && !kOtherWords.contains(found[2])) {
            flags.push_back(found[1]);
        }
    }
    return flags;
}

TEST_P(ExtremeValues, EndWithADocumentedCodeOrAreRefusedByName) {
    const ExtremeCase& c = GetParam();
    const std::string program =
        c.subcommand == "train_gpt" ? kTrainGpt : kTool + (" " + c.subcommand);
    const std::vector<std::string> flags = numeric_flags(run(program + " --help").output);
    ASSERT_FALSE(flags.empty());
    size_t turn = 0;
    for (const std::string& flag : flags) {
        for (size_t i = 0; i < kValues.size(); ++i) {
            if (!full_run() && i % 3 != turn % 3) continue;
            const std::string& value = kValues[i];
            SCOPED_TRACE(c.subcommand + " " + flag + "=" + value);
            // A flag may stand once.
            std::string command = c.flags;
            if (const size_t at = command.find(flag + " "); at != std::string::npos) {
                command.erase(at, command.find(" --", at) - at);
            }
            const bool endless = kEndless.contains(flag);
            command = (endless ? "timeout 6 " : "timeout 60 ") + program + " " + command + " " +
                      flag + "=" + value;
            const Outcome outcome = run("rm -rf converted && ulimit -v 8000000 && " + command);
            if (outcome.exit_code == 124 && endless) {
                EXPECT_NE(outcome.output + outcome.error, "") << "works on, in silence";
                continue;
            }
            // 5: a time limit of next to nothing is over; 7: the loss is not finite.
            EXPECT_THAT(outcome.exit_code, AnyOf(0, 2, 3, 4, 5, 7)) << outcome.error;
            if (outcome.exit_code == 0) continue;
            const size_t at = outcome.error.find("error: ");
            ASSERT_NE(at, std::string::npos) << outcome.error;
            const std::string line = outcome.error.substr(at);
            EXPECT_EQ(line.find('\n'), line.size() - 1) << "more than a line: " << line;
            if (outcome.exit_code == 2) {
                EXPECT_THAT(line, AnyOf(HasSubstr(flag), HasSubstr(value)));
            }
        }
        ++turn;
    }
}

const std::string kSchedule = "1f1b --pp 2 --microbatches 4";
INSTANTIATE_TEST_SUITE_P(
    , ExtremeValues,
    ::testing::Values(
        ExtremeCase{"simulate", "simulate", kSchedule},
        ExtremeCase{"timeline", "timeline", kSchedule + " --svg picture.svg"},
        ExtremeCase{"explain", "explain", kSchedule},
        ExtremeCase{"schedule_show", "schedule show", kSchedule},
        ExtremeCase{"plan", "plan",
                    "--model gemma-3-1b --gpus 2 --gpu a100 --seq-length 512 "
                    "--global-batch-size 4 --schedules 1f1b"},
        ExtremeCase{"profile", "profile",
                    std::string("--output profile.json --ranks 2 --transport threads --steps 1") +
                        kModel + " "},
        ExtremeCase{"generate", "generate", "--load saved --prompt It --max-new-tokens 4"},
        ExtremeCase{"data_prepare", "data prepare",
                    "--input text.txt --output more --tokenizer bytes"},
        ExtremeCase{"checkpoint_convert", "checkpoint convert", "saved converted"},
        ExtremeCase{"train_gpt", "train_gpt",
                    std::string("--data-path data") + kModel +
                        " --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --transport "
                        "threads --ranks 2 "}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace vocabpipe::testing
