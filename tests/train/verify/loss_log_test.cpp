// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/loss_log.hpp"
#include "src/train/verify/compare_losses.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

std::vector<LoggedLoss> losses_of(const std::string& text, const std::string& column = "") {
    const TempFolder folder;
    write_file(folder / "log", text);
    return read_loss_log(folder / "log", column);
}

std::string refusal_of(const std::string& text, const std::string& column = "") {
    try {
        (void)losses_of(text, column);
    } catch (const InputFileError& error) {
        const std::string what = error.what();
        return what.substr(what.find("log: ") + 5);
    }
    return "not refused";
}

void expect_losses(const std::string& text, const std::vector<LoggedLoss>& expected,
                   const std::string& column = "") {
    const std::vector<LoggedLoss> found = losses_of(text, column);
    ASSERT_EQ(found.size(), expected.size()) << text;
    for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].step, expected[i].step) << text;
        EXPECT_EQ(found[i].loss, expected[i].loss) << text;
        EXPECT_NEAR(found[i].rounding, expected[i].rounding, 1e-3 * expected[i].rounding) << text;
    }
}

TEST(LossLog, ReadsMegatronsLinesAmongOthers) {
    expect_losses(
        "training ...\n"
        " [2026-11-29 10:00:00] iteration        1/     100 | consumed samples:            8 | "
        "elapsed time per iteration (ms): 812.3 | learning rate: 1.5E-05 | global batch size:     "
        "8 | lm loss: 1.093421E+01 | loss scale: 1.0 | grad norm: 9.871 |\n"
        "validation loss at iteration 1 | lm loss value: 1.1E+01 | lm loss PPL: 6.0E+04 |\n"
        " iteration        2/     100 | lm loss: 9.500000E-01 | grad norm: 9.871 |\n",
        {{1, 10.93421, 0.5e-5}, {2, 0.95, 0.5e-7}});
}

TEST(LossLog, ReadsOurOwnConsoleOutputAndMetrics) {
    expect_losses(" iteration 7/20 | lm loss 4.122302 | grad norm 2.272 | lr 3.000e-04 |\r\n",
                  {{7, 4.122302, 0.5e-6}});
    expect_losses(
        "{\"step\":1,\"loss\":4.25,\"lr\":0.1}\n{\"step\":1,\"eval_loss\":4}\n"
        "{\"loss\":3.5,\"step\":2}\n{\"step\":3,\"lo",
        {{1, 4.25, 0}, {2, 3.5, 0}});
}

TEST(LossLog, ReadsColumnsOfCsvByName) {
    expect_losses("step,lr,loss\n10,1e-3,4.5\n20,1e-3,4.25\n30,1e-3\n",
                  {{10, 4.5, 0.05}, {20, 4.25, 0.005}});
    expect_losses("a, \"my loss\"\n1,2.5\n1,\n1,3\n", {{1, 2.5, 0.05}, {2, 3, 0.5}}, "my loss");
}

TEST(LossLog, ReadsOneNumberALineAndKeepsTheLastOfAStep) {
    expect_losses("4.5\n+4.25e0\n\n4e-1\n", {{1, 4.5, 0.05}, {2, 4.25, 0.005}, {3, 0.4, 0.05}});
    expect_losses(
        "{\"iteration\":2,\"loss\":5}\n{\"iteration\":1,\"loss\":6}\n"
        "{\"iteration\":2,\"loss\":4}\n",
        {{1, 6, 0}, {2, 4, 0}});
}

TEST(LossLog, RefusesFilesWithoutLossesAndWhatIsNone) {
    EXPECT_EQ(refusal_of(""),
              "no line has a loss under the name lm loss, loss, train_loss, train/loss; name its "
              "column with --column");
    EXPECT_EQ(refusal_of("step,loss\n1,2\n", "losses"),
              "no line has a loss under the name losses; name its column with --column");
    EXPECT_EQ(refusal_of("\n{\"step\":1,\"loss\":\"4\"}"), "line 2: \"loss\" is not a number");
    EXPECT_EQ(refusal_of("{\"step\":1.5,\"loss\":4}"), "line 1: \"step\" is no integer");
    EXPECT_EQ(refusal_of("{\"step\":0,\"loss\":4}"), "line 1: step 0: must be at least 1");
    EXPECT_EQ(refusal_of("step,loss\nx,2\n"), "line 2: the step is no integer");
    EXPECT_EQ(refusal_of(" iteration 1/2 | lm loss: ? |"),
              "line 1: lm loss is not followed by a number");
}

TEST(LossLog, ReadsNumbersThatAreNoLossesAsThem) {
    const std::vector<LoggedLoss> found =
        losses_of("nan\ninf\n1e999\n{\"step\":4,\"loss\":null}\n");
    ASSERT_EQ(found.size(), 4U);
    EXPECT_TRUE(std::isnan(found[0].loss));
    EXPECT_TRUE(std::isinf(found[1].loss));
    EXPECT_TRUE(std::isnan(found[2].loss));
    EXPECT_TRUE(std::isnan(found[3].loss));
}

TEST(ComparedLosses, MayDifferByTheToleranceTheRootOfTheStepAndTheDigitsThatArePrinted) {
    const std::vector<LoggedLoss> mine{{1, 4, 0}, {4, 2, 0}, {9, 1, 0}};
    const auto compared = [&](double first, double fourth, double digits) {
        return compare_losses(mine, std::vector<LoggedLoss>{{1, first, 0}, {4, fourth, digits}},
                              {.relative = 1e-3});
    };
    // 1e-3 of 4; 1e-3 sqrt(4) of 2, and the digits.
    EXPECT_FALSE(compared(4.0039, 2.0039, 0).first);
    EXPECT_EQ(compared(4.0041, 2, 0).first->mine.step, 1);
    EXPECT_EQ(compared(4, 2.0041, 0).first->mine.step, 4);
    EXPECT_FALSE(compared(4, 2.0043, 5e-4).first);
    EXPECT_EQ(compared(4, 2, 0).steps, 2) << "step 9 is in one log alone";
    EXPECT_EQ(compared(5, 3, 0).differing, 2);
    EXPECT_NEAR(compared(4.002, 2, 0).worst->share(), 0.5, 1e-3);
}

TEST(ComparedLosses, AgreeOnWhatIsNoNumberAndOnStepsThatAreCompared) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const auto agree = [](double a, double b) {
        return !compare_losses(std::vector<LoggedLoss>{{1, a, 0}},
                               std::vector<LoggedLoss>{{1, b, 0}}, {.relative = 1e-3})
                    .first;
    };
    EXPECT_TRUE(agree(kNan, kNan));
    EXPECT_FALSE(agree(kNan, 1));
    EXPECT_FALSE(agree(1, kNan));
    const std::vector<LoggedLoss> mine{{1, 1, 0}, {2, 1, 0}};
    const std::vector<LoggedLoss> other{{1, 1, 0}, {2, 2, 0}};
    EXPECT_FALSE(compare_losses(mine, other, {.relative = 1e-3, .last_step = 1}).first);
    EXPECT_TRUE(compare_losses(mine, other, {.relative = 1e-3, .last_step = 2}).first);
}

}  // namespace
}  // namespace vocabpipe::testing
