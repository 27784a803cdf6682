// SPDX-License-Identifier: Apache-2.0
// Figures that train_gpt says of a run, against others that it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tool/run_program.hpp"

namespace vocabpipe {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::TempFolder;

/// Trains 3 steps of 2 microbatches on 200 documents of 24 bytes, the last 20 of them kept apart.
class TrainFigures : public ::testing::Test {
protected:
    TrainFigures() {
        std::string text;
        for (int i = 0; i < 200; ++i)
            text += "Document " + std::to_string(1000 + i) + " of many.\n";
        testing::write_file(folder_ / "text.txt", text);
        const Outcome made = testing::run_shell(
            "cd '" + (folder_ / "") +
            "' && '" VOCABPIPE_PROGRAM
            "' data prepare --input text.txt --output set --document-separator line");
        EXPECT_EQ(made.exit_code, 0) << made.error;
    }
    [[nodiscard]] Outcome train(const std::string& arguments) const {
        return testing::run_shell(
            "cd '" + (folder_ / "") +
            "' && '" TRAIN_GPT_PROGRAM
            "' --transport threads --ranks 2 --data-path set --vocab-size 257 --num-layers 4 "
            "--hidden-size 32 --num-attention-heads 2 --seq-length 16 --global-batch-size 2 "
            "--train-iters 3 --lr 1e-2 --split 90,10,0 " +
            arguments);
    }
    /// The number behind the words in what a run printed.
    static std::string number_behind(const std::string& words, const std::string& output) {
        const size_t at = output.find(words);
        if (at == std::string::npos) return "no " + words;
        const size_t begin = at + words.size();
        return output.substr(begin, output.find_first_of(" \n", begin) - begin);
    }

    TempFolder folder_;
};

TEST_F(TrainFigures, ReportHasTheLossesOfTheFirstStepAndOfTheLast) {
    const Outcome run = train("--metrics metrics.jsonl --report report.json");
    ASSERT_EQ(run.exit_code, 0) << run.error;
    std::istringstream lines(testing::read_file(folder_ / "metrics.jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) {
        const json record = json::parse(line);
        if (record.contains("loss")) losses.push_back(record["loss"].get<double>());
    }
    ASSERT_EQ(losses.size(), 3);
    EXPECT_NE(losses.front(), losses.back());
    const json report = json::parse(testing::read_file(folder_ / "report.json"));
    EXPECT_EQ(report.at("first_loss").get<double>(), losses.front());
    EXPECT_EQ(report.at("last_loss").get<double>(), losses.back());
}

// 257 x 32 embedded tokens, 16 x 32 positions, 4 layers of 12 h^2 + 13 h, a norm of 2 h: 59,616.
TEST_F(TrainFigures, PlanCountsTheParameters) {
    const Outcome run = train("--train-iters 1");
    EXPECT_THAT(run.output, HasSubstr(" 0.06 M parameters\n")) << run.error;
}

TEST_F(TrainFigures, ValidationTakesTheBatchesThatItIsTold) {
    const auto loss = [&](const std::string& batches) {
        const Outcome run = train("--eval-interval 3 --eval-iters " + batches);
        EXPECT_EQ(run.exit_code, 0) << run.error;
        return number_behind("validation loss at iteration 3 | lm loss value: ", run.output);
    };
    const std::string one = loss("1"), two = loss("2"), all = loss("1000");
    EXPECT_NE(one, two);
    EXPECT_NE(two, all);
    EXPECT_EQ(all, loss("100000")) << "one epoch at most";
}

}  // namespace
}  // namespace vocabpipe
