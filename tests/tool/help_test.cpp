// SPDX-License-Identifier: Apache-2.0
// What the programs say of their command lines, and of one that they cannot read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_shell;

const std::string kTool = "'" VOCABPIPE_PROGRAM "'";
const std::string kTrain = "'" TRAIN_GPT_PROGRAM "'";

/// Every line fits 80 columns, and every flag has a text. Goes into subcommands; returns how many
/// help texts there were.
int check_help(const std::string& command) {
    const Outcome help = run_shell(command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    std::istringstream in(help.output);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    int texts = 1;
    bool subcommands = false;
    for (size_t i = 0; i < lines.size(); ++i) {
        const std::string& line = lines[i];
        EXPECT_LE(line.size(), 80U) << command << ": " << line;
        if (line.starts_with("Subcommands:")) subcommands = true;
        if (!line.starts_with("  ") || line.size() < 3 || line[2] == ' ') continue;
        if (subcommands) {
            texts += check_help(command + " " + line.substr(2, line.find(' ', 2) - 2));
        } else if (line[2] == '-') {
            const bool has_text = line.size() > 31 && line[29] == ' ' && line[30] != ' ';
            const bool below = i + 1 < lines.size() && lines[i + 1].starts_with("     ");
            EXPECT_TRUE(has_text || below) << command << ": " << line << " has no text";
        }
    }
    return texts;
}

TEST(Help, FitsEightyColumnsAndHasATextForEveryFlag) {
    EXPECT_EQ(check_help(kTrain), 1);
    EXPECT_GT(check_help(kTool), 18);
}

TEST(Help, GroupsFlags) {
    const std::string help = run_shell(kTrain + " --help").output;
    for (const char* group : {"\nModel:\n", "\nSchedule:\n", "\nData:\n", "\nOptimizer:\n",
                              "\nCheckpoints:\n", "\nOutputs:\n"}) {
        EXPECT_THAT(help, HasSubstr(group));
    }
    EXPECT_THAT(help, HasSubstr("--max-shard-size BYTES "));
    EXPECT_THAT(help, Not(HasSubstr("UINT")));
    EXPECT_THAT(help, HasSubstr("(default: 0.0003)"));
}

TEST(Version, IsPrintedAlikeByBothPrograms) {
    EXPECT_EQ(run_shell(kTrain + " --version").output, "train_gpt " VOCABPIPE_VERSION "\n");
    EXPECT_EQ(run_shell(kTool + " --version").output, "vocabpipe " VOCABPIPE_VERSION "\n");
}

/// The one line with which a command line is refused.
std::string refused(const std::string& command) {
    const Outcome outcome = run_shell(command);
    EXPECT_EQ(outcome.exit_code, 2) << command << ": " << outcome.error;
    return outcome.error;
}

TEST(UnknownFlags, AreNamedInOrderWithTheNearestOne) {
    EXPECT_EQ(refused(kTrain + " --num-layer 3 --foo=4 --lr 1"),
              "train_gpt: error: --num-layer: unknown flag; did you mean --num-layers?; --foo: "
              "unknown flag; see train_gpt --help\n");
    EXPECT_EQ(refused(kTool + " plan --gups 4"),
              "vocabpipe: error: --gups: unknown flag; did you mean --gpus?; see vocabpipe plan "
              "--help\n");
    EXPECT_EQ(refused(kTrain + " word"),
              "train_gpt: error: word: unexpected argument; see train_gpt --help\n");
    EXPECT_EQ(refused(kTrain + " --lr"),
              "train_gpt: error: --lr: expected a value; see train_gpt --help\n");
    EXPECT_EQ(refused(kTool + " timeline t.json --html --help"),
              "vocabpipe: error: --html: expected a value, got the flag --help; write "
              "--html=--help if that is the value\n");
    EXPECT_EQ(refused(kTrain + " --bf16=3"),
              "train_gpt: error: --bf16 3: is a switch; omit the value, or use true or false\n");
    EXPECT_EQ(refused(kTool + " simulate 1f1b,microbatch=3,foo=4 --pp 2"),
              "vocabpipe: error: 1f1b,microbatch=3,foo=4: --microbatch: unknown flag; did you mean "
              "--microbatches?; --foo: unknown flag; use NAME,flag=value,... such as "
              "1f1b,vocab-mode=one_barrier\n");
}

TEST(UnknownSubcommands, AreNamedWithTheNearestOne) {
    EXPECT_EQ(refused(kTool + " schedule shw"),
              "vocabpipe: error: shw: unknown subcommand of vocabpipe schedule; use one of list, "
              "show, check, convert; did you mean show?; see vocabpipe schedule --help\n");
    EXPECT_EQ(refused(kTool + " schedule"),
              "vocabpipe: error: vocabpipe schedule: requires a subcommand: list, show, check, "
              "convert; see vocabpipe schedule --help\n");
    EXPECT_THAT(refused(kTool + " simulat"), HasSubstr("did you mean simulate?"));
}

TEST(RepeatedFlags, CountTheLastTimeInBothPrograms) {
    const Outcome twice =
        run_shell(kTool + " schedule show 1f1b --pp 3 --pp 2 --microbatches 4 --format csv");
    EXPECT_EQ(twice.exit_code, 0) << twice.error;
    EXPECT_EQ(twice.output,
              run_shell(kTool + " schedule show 1f1b --pp 2 --microbatches 4 --format csv").output);
}

TEST(NumbersOfTheTool, ThatAreNoneAreRefusedAsSuch) {
    EXPECT_THAT(refused(kTool + " schedule show 1f1b --pp 2 --microbatches 4 --memory-limit " +
                        std::string(309, '9')),
                HasSubstr("...: is not a number, or is out of range; use a decimal integer"));
    EXPECT_THAT(refused(kTool + " schedule show 1f1b --pp 0"),
                HasSubstr("--pp 0: must be at least 1\n"));
    EXPECT_THAT(refused(kTool + " completion fish"),
                HasSubstr("SHELL fish: must be one of bash, zsh\n"));
}

}  // namespace
}  // namespace vocabpipe
