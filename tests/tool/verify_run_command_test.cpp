// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

class VerifyRunCommand : public ::testing::Test {
protected:
    VerifyRunCommand() {
        write_file(folder_ / "mine.jsonl",
                   "{\"step\":1,\"loss\":10.934212}\n{\"step\":2,\"loss\":10.5}\n");
    }
    [[nodiscard]] Outcome verify(const std::string& log, const std::string& flags = "") const {
        write_file(folder_ / "other.log", log);
        return run_in(folder_,
                      "'" VOCABPIPE_PROGRAM "' verify-run mine.jsonl --against other.log " + flags);
    }
    TempFolder folder_;
};

TEST_F(VerifyRunCommand, SaysThatLossesAgreeAndHowNearly) {
    const Outcome same = verify(
        " iteration 1/ 2 | lm loss: 1.093421E+01 |\n iteration 2/ 2 | lm loss: 1.050001E+01 |\n");
    EXPECT_EQ(same.exit_code, 0) << same.error;
    EXPECT_THAT(unwrapped(same.output),
                HasSubstr("mine.jsonl and other.log: losses agree in 2 steps; nearest to a "
                          "tolerance, 0.011 of it: step 2: 10.5 and 10.50001, tolerance 0.00091"));
}

TEST_F(VerifyRunCommand, NamesTheFirstStepThatDiffersWithExitCode7) {
    const Outcome other = verify("10.93421\n10.6\n");
    EXPECT_EQ(other.exit_code, 7);
    EXPECT_EQ(other.output, "");
    EXPECT_EQ(other.error,
              "vocabpipe: error: mine.jsonl and other.log: losses differ at step 2: 10.5 and 10.6, "
              "tolerance 0.051; 1 of 2 steps do; see docs/verification.md for what to look for\n");
    EXPECT_EQ(verify("10.93421\n10.6\n", "--steps 1").exit_code, 0);
    EXPECT_EQ(verify("10.93421\n10.6\n", "--tolerance 0.01").exit_code, 0);
    EXPECT_EQ(verify("10.9350\n10.5000\n").exit_code, 7);
    EXPECT_EQ(verify("10.9350\n10.5000\n", "--bf16").exit_code, 0);
}

TEST_F(VerifyRunCommand, RefusesLogsWithoutCommonStepsOrLosses) {
    EXPECT_EQ(verify("{\"step\":7,\"loss\":1}").exit_code, 3);
    EXPECT_EQ(verify("no losses\n").exit_code, 3);
    EXPECT_EQ(verify("1\n2\n", "--column x").exit_code, 3);
    EXPECT_EQ(run_in(folder_, "'" VOCABPIPE_PROGRAM "' verify-run mine.jsonl").exit_code, 2);
    EXPECT_EQ(
        run_in(folder_, "'" VOCABPIPE_PROGRAM "' verify-run mine.jsonl --against gone").exit_code,
        3);
}

}  // namespace
}  // namespace vocabpipe::testing
