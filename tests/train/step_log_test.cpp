// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/step_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<json> lines_of(const std::string& path) {
    std::istringstream in(read_file(path));
    std::vector<json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
}

class OfSteps : public ::testing::Test {
protected:
    OfSteps() {
        options_.train_iters = 4;
        options_.metrics = folder_ / "metrics";
    }
    /// What a log prints of steps of which the second changes nothing.
    std::string printed() {
        ::testing::internal::CaptureStdout();
        StepLog log(options_, 1);
        for (int64_t step = 1; step <= 4; ++step) {
            log.add({.step = step, .loss = 2, .updated = step != 2}, step == 4);
        }
        log.close();
        return ::testing::internal::GetCapturedStdout();
    }
    TempFolder folder_;
    TrainOptions options_;
};

TEST_F(OfSteps, PrintsALineForEachThatTheIntervalAsksForAndTheLast) {
    options_.log_interval = 3;
    const std::string text = printed();
    EXPECT_THAT(text, HasSubstr(" iteration 3/4 |"));
    EXPECT_THAT(text, HasSubstr(" iteration 4/4 |"));
    EXPECT_THAT(text, Not(HasSubstr(" iteration 2/")));
    EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST_F(OfSteps, PrintTheMeansOfAnInterval) {
    options_.log_interval = 3;
    ::testing::internal::CaptureStdout();
    StepLog log(options_, 1);
    const double losses[] = {9, 6, 3, 2};
    const double seconds[] = {1, 2, 3, 4};
    for (int64_t step = 1; step <= 4; ++step) {
        log.add({.step = step,
                 .loss = losses[step - 1],
                 .grad_norm = static_cast<double>(step),
                 .lr = 0.5,
                 .tokens_per_second = 600 / seconds[step - 1],
                 .step_seconds = seconds[step - 1],
                 .updated = step != 2},
                step == 4);
    }
    log.close();
    // Loss: of the steps that changed weights; norm and rate: the last step's.
    EXPECT_EQ(::testing::internal::GetCapturedStdout(),
              " iteration 3/4 | lm loss 6.000000 | grad norm 3.000 | lr 5.000e-01 | 2000.0 ms | "
              "300 tokens/s | update skipped\n"
              " iteration 4/4 | lm loss 2.000000 | grad norm 4.000 | lr 5.000e-01 | 4000.0 ms | "
              "150 tokens/s\n");
    EXPECT_EQ(lines_of(options_.metrics)[2].at("loss"), 3) << "files have each step";
}

TEST_F(OfSteps, KeepToALineOf120ColumnsAndSayNanWithoutASign) {
    const StepMetrics large{.step = 123456,
                            .loss = 10.123456,
                            .grad_norm = 123.456,
                            .lr = 1.5e-4,
                            .tokens_per_second = 1'234'567,
                            .step_seconds = 12.3456};
    EXPECT_LE(step_line(large, 500'000).size(), 120U) << step_line(large, 500'000);
    StepMetrics of_experts = large;
    of_experts.updated = false;
    of_experts.routers = RouterResult{.aux_loss = 1.2345, .z_loss = 12.345, .max_load = 12.34};
    std::istringstream lines(step_line(of_experts, 500'000));
    std::string line;
    for (int i = 0; std::getline(lines, line); ++i) {
        EXPECT_LE(line.size(), 120U) << line;
        if (i == 0) {
            EXPECT_THAT(line, ::testing::EndsWith(" tokens/s"));
        }
    }
    EXPECT_EQ(line,
              "    | update skipped | moe aux loss 1.2345 | moe z loss 12.345 | "
              "moe max load 12.34");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::string skipped =
        step_line({.step = 3, .loss = -nan, .grad_norm = -nan, .updated = false}, 4);
    EXPECT_THAT(skipped, HasSubstr(" iteration 3/4 | lm loss nan | grad norm nan | "));
    EXPECT_THAT(skipped, ::testing::EndsWith(" | update skipped"));
}

TEST_F(OfSteps, ShowsABarOnATerminalAndTheLineOfTheLast) {
    options_.terminal_columns = [] { return 80; };
    std::string text = printed();
    EXPECT_THAT(text, HasSubstr("\r\033[K["));
    EXPECT_THAT(text, Not(HasSubstr(" iteration 3/")));
    EXPECT_THAT(text, HasSubstr("\r\033[K iteration 4/")) << "in a line of its own";
    options_.log_interval_given = true;
    text = printed();
    EXPECT_THAT(text, HasSubstr("\r\033[K iteration 3/"));
}

TEST_F(OfSteps, CountsThoseThatChangedNothing) {
    (void)printed();
    const std::vector<json> lines = lines_of(options_.metrics);
    ASSERT_EQ(lines.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(lines[i].at("skipped_steps"), i < 1 ? 0 : 1);
        EXPECT_EQ(lines[i].at("updated"), i != 1);
        EXPECT_GE(lines[i].at("elapsed_seconds"),
                  i == 0 ? 0.0 : lines[i - 1]["elapsed_seconds"].get<double>());
    }
}

TEST_F(OfSteps, OfTwoRunsDoNotShareAFile) {
    ::testing::internal::CaptureStdout();
    {
        StepLog log(options_, 1);
        log.add({.step = 1, .loss = 2}, false);
        for (const int64_t first_step : {1, 2}) {
            try {
                const StepLog second(options_, first_step);
                ADD_FAILURE() << first_step;
            } catch (const UsageError& error) {
                EXPECT_THAT(error.what(), HasSubstr("metrics: another run is writing it; choose"));
            }
        }
        log.add({.step = 2, .loss = 2}, true);
        log.close();
    }
    EXPECT_EQ(lines_of(options_.metrics).size(), 2U);
    { StepLog later(options_, 3); }
    (void)::testing::internal::GetCapturedStdout();
    EXPECT_EQ(lines_of(options_.metrics).size(), 2U);
}

TEST_F(OfSteps, GoOnInANewFileWhereTheirFileWasRemoved) {
    ::testing::internal::CaptureStdout();
    StepLog log(options_, 1);
    log.add({.step = 1, .loss = 2}, false);
    std::filesystem::remove(options_.metrics);
    log.add({.step = 2, .loss = 2}, false);
    log.add({.step = 3, .loss = 2}, true);
    log.close();
    (void)::testing::internal::GetCapturedStdout();
    const std::vector<json> lines = lines_of(options_.metrics);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines.front().at("step"), 2);
}

TEST(MetricsOfARun, GoOnWithTheDataOverARestart) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.save = runs.path("saved");
    options.metrics = runs.path("metrics");
    options.tensorboard_dir = runs.path("board");
    options.exit_interval = 3;
    (void)runs.run(2, options);
    options.load = options.save;
    (void)runs.run(2, options);
    const std::vector<json> lines = lines_of(options.metrics);
    ASSERT_EQ(lines.size(), 6u);
    for (size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(lines[i].at("step"), i + 1);
        EXPECT_EQ(lines[i].at("global_batch_size"), 6);
        EXPECT_EQ(lines[i].at("consumed_samples"), 6 * (i + 1));
        EXPECT_EQ(lines[i].at("consumed_tokens"), 6 * 16 * (i + 1));
    }
    // A file for each run, in Megatron's names.
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(options.tensorboard_dir)) {
        files.push_back(read_file(entry.path().string()));
    }
    ASSERT_EQ(files.size(), 2u);
    for (const std::string& file : files) {
        for (const char* tag : {"lm loss", "learning-rate", "grad-norm", "batch-size"}) {
            EXPECT_THAT(file, HasSubstr(tag));
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
