// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/metrics_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/train/data/file_size_limit.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;

const std::string kFirst = "{\"loss\":4.0,\"step\":1}\n";
const std::string kSecond = "{\"loss\":3.0,\"step\":2}\n";
const std::string kThird = "{\"loss\":2.0,\"step\":3}\n";

class MetricsOnDisk : public ::testing::Test {
protected:
    /// What is in the file when a run goes on after a step and writes the next one; every line is
    /// whole. -1: a line without a number of its step.
    [[nodiscard]] std::vector<int64_t> steps_after(const std::string& text, int64_t last_step) {
        write_file(path_, text);
        MetricsFile file(path_, last_step);
        kept_ = read_file(path_);
        file.add({.step = last_step + 1, .loss = 1});
        file.close();
        std::vector<int64_t> steps;
        std::istringstream in(read_file(path_));
        for (std::string line; std::getline(in, line);) {
            const auto json = nlohmann::json::parse(line, nullptr, false);
            EXPECT_TRUE(json.is_object()) << line;
            const bool numbered = json.contains("step") && json["step"].is_number_integer();
            steps.push_back(numbered ? json["step"].get<int64_t>() : -1);
        }
        return steps;
    }
    TempFolder folder_;
    std::string path_ = folder_ / "metrics";
    std::string kept_;
};

TEST_F(MetricsOnDisk, KeepAWholeLastLineThatLacksItsBreakOnALineOfItsOwn) {
    EXPECT_THAT(steps_after(kFirst + kSecond.substr(0, kSecond.size() - 1), 2),
                ElementsAre(1, 2, 3));
    EXPECT_EQ(kept_, kFirst + kSecond);
}

TEST_F(MetricsOnDisk, LoseALastLineThatWasCut) {
    for (size_t length = 1; length < kSecond.size() - 1; ++length) {
        EXPECT_THAT(steps_after(kFirst + kSecond.substr(0, length), 1), ElementsAre(1, 2));
        EXPECT_EQ(kept_, kFirst) << length;
    }
}

TEST_F(MetricsOnDisk, LoseTheStepsThatAreTakenAgainAndNothingElse) {
    const std::string note = "{\"note\":\"of a person\"}\n";
    const std::string text = "{\"step\":\"later\"}\n";
    EXPECT_THAT(steps_after(kFirst + note + kSecond + text + kThird, 2),
                ElementsAre(1, -1, 2, -1, 3));
}

TEST_F(MetricsOnDisk, KeepWholeLinesOfAnyKind) {
    const std::string words = "# words of a person\n";
    write_file(path_, words + kFirst + "\n" + kSecond + words);
    { const MetricsFile file(path_, 1); }
    EXPECT_EQ(read_file(path_), words + kFirst + "\n" + words);
}

TEST_F(MetricsOnDisk, OfARunThatGoesOnAreNotCutByAnother) {
    MetricsFile file(path_);
    for (int64_t step = 1; step <= 3; ++step) file.add({.step = step, .loss = 1});
    const std::string before = read_file(path_);
    EXPECT_THROW(MetricsFile(path_, 1), UsageError);
    EXPECT_EQ(read_file(path_), before);
    file.add({.step = 4, .loss = 1});
    EXPECT_EQ(read_file(path_).substr(0, before.size()), before);
    EXPECT_GT(read_file(path_).size(), before.size());
}

TEST_F(MetricsOnDisk, StayTheSameFileWhereNothingIsLost) {
    write_file(path_, kFirst + kSecond);
    struct stat before {};
    struct stat after {};
    ASSERT_EQ(::stat(path_.c_str(), &before), 0);
    { const MetricsFile file(path_, 2); }
    ASSERT_EQ(::stat(path_.c_str(), &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino) << "who watches it sees what follows";
    EXPECT_EQ(read_file(path_), kFirst + kSecond);
    { const MetricsFile file(path_, 0); }
    EXPECT_EQ(read_file(path_), "") << "a run of its own begins anew";
}

TEST_F(MetricsOnDisk, HaveEveryNumberOfAStep) {
    using nlohmann::json;
    const double nan = std::nan("");
    {
        MetricsFile file(path_);
        file.add({.step = 1,
                  .loss = 2.5,
                  .grad_norm = 3.5,
                  .lr = 0.25,
                  .tokens_per_second = 4.5,
                  .step_seconds = 5.5,
                  .updated = false,
                  .global_batch_size = 6,
                  .consumed_samples = 7,
                  .consumed_tokens = 8,
                  .skipped_steps = 9,
                  .elapsed_seconds = 10.5});
        file.add(
            {.step = 2,
             .loss = nan,
             .grad_norm = INFINITY,
             .routers = RouterResult{.aux_loss = 11.5, .z_loss = 12.5, .max_load = nan},
             .depth_losses = {13.5, nan},
             .pairs = PreferenceMeans{
                 .loss = 14.5, .accuracy = 0.5, .chosen_reward = 1.5, .rejected_reward = -2.5}});
        file.add(EvaluationMetrics{.step = 3, .eval_seconds = 0.5});
        file.add(EvaluationMetrics{.step = 4,
                                   .eval_loss = 1.5,
                                   .eval_ppl = INFINITY,
                                   .choice_accuracy = 0.25,
                                   .eval_seconds = 0.5});
        file.close();
    }
    std::vector<json> lines;
    std::istringstream in(read_file(path_));
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines[0], json::parse(R"({"step": 1, "loss": 2.5, "grad_norm": 3.5, "lr": 0.25,
                              "tokens_per_second": 4.5, "step_seconds": 5.5, "updated": false,
                              "global_batch_size": 6, "consumed_samples": 7, "consumed_tokens": 8,
                              "skipped_steps": 9, "elapsed_seconds": 10.5})"));
    EXPECT_EQ(lines[1], json::parse(R"({"step": 2, "loss": null, "grad_norm": null, "lr": 0.0,
                              "tokens_per_second": 0.0, "step_seconds": 0.0, "updated": true,
                              "global_batch_size": 0, "consumed_samples": 0, "consumed_tokens": 0,
                              "skipped_steps": 0, "elapsed_seconds": 0.0,
                              "moe_aux_loss": 11.5, "moe_z_loss": 12.5, "moe_max_load": null,
                              "mtp_1_loss": 13.5, "mtp_2_loss": null, "rewards/accuracies": 0.5,
                              "rewards/chosen": 1.5, "rewards/rejected": -2.5,
                              "rewards/margins": 4.0})"));
    EXPECT_EQ(lines[2], json::parse(R"({"step": 3, "eval_seconds": 0.5})"));
    EXPECT_EQ(lines[3], json::parse(R"({"step": 4, "eval_seconds": 0.5, "eval_loss": 1.5,
                                        "eval_ppl": null, "choice_accuracy": 0.25})"));
}

TEST_F(MetricsOnDisk, EndWithAWholeLineOnAFullDisk) {
    write_file(path_, kFirst);
    size_t written = 0;
    {
        const FileSizeLimit full(1000);
        MetricsFile file(path_, 1);
        EXPECT_THROW(
            {
                for (int64_t step = 2; step < 100; ++step) {
                    file.add({.step = step, .loss = 1});
                    ++written;
                }
            },
            OutputFileError);
    }
    const std::string text = read_file(path_);
    EXPECT_GT(written, 1U);
    EXPECT_EQ(text.substr(0, kFirst.size()), kFirst);
    EXPECT_EQ(text.back(), '\n');
    EXPECT_EQ(std::ranges::count(text, '\n'), 1 + static_cast<ptrdiff_t>(written));
}

}  // namespace
}  // namespace vocabpipe::testing
