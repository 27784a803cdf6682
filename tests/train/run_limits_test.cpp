// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/run_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/one_rank.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(RunLimits, AddUpToTheMostUrgentReasonOverAnyNumberOfRanks) {
    TrainOptions options;
    bool usr1 = false;
    bool term = false;
    options.stop_requested = [&] { return usr1; };
    options.terminated = [&] { return term ? SIGTERM : 0; };
    RunLimits limits(options, 1);
    const double nothing = limits.request(false);
    const double failed = limits.request(true);
    usr1 = true;
    const double stop = limits.request(false);
    term = true;
    const double terminated = limits.request(false);
    EXPECT_EQ(limits.reason(1, 100'000 * nothing), StopReason::none);
    EXPECT_EQ(limits.reason(1, 99'999 * nothing + failed), StopReason::requested);
    EXPECT_EQ(limits.reason(1, 100'000 * stop), StopReason::requested);
    EXPECT_EQ(limits.reason(1, 99'999 * stop + terminated), StopReason::terminated);
    EXPECT_EQ(limits.reason(1, 100'000 * terminated), StopReason::terminated);
}

TEST(RunLimits, CountTheMinutesOnRankZeroAndEndWithTheStepThatWouldCrossThem) {
    TrainOptions options;
    options.exit_duration_minutes = 1;
    double now = 100;
    const auto clock = [&now] { return now; };
    RunLimits first(options, 0, clock);
    RunLimits second(options, 1, clock);
    const auto at = [&](RunLimits& limits, double seconds) {
        now = seconds;
        return limits.reason(1, limits.request(false));
    };
    EXPECT_EQ(at(first, 140), StopReason::none) << "what went before is no step";
    first.step_took(20);
    EXPECT_EQ(at(first, 139), StopReason::none);      // another 20 s end at 159
    EXPECT_EQ(at(first, 141), StopReason::duration);  // at 161, a second too late
    EXPECT_EQ(at(second, 500), StopReason::none);
}

TEST(RunLimits, AskForASaveWhenItsMinutesAreOver) {
    TrainOptions options;
    options.save_interval_minutes = 2;
    double now = 100;
    RunLimits limits(options, 0, [&now] { return now; });
    const auto due = [&](double seconds) {
        now = seconds;
        return limits.save_due(limits.request(false));
    };
    limits.step_took(10);
    EXPECT_FALSE(due(209));
    EXPECT_TRUE(due(211)) << "the step that begins ends at 221";
    EXPECT_EQ(limits.reason(1, limits.request(false)), StopReason::none);
    now = 221;
    limits.saved();
    EXPECT_FALSE(due(330));
    EXPECT_TRUE(due(332));
}

TEST(RunLimits, EndAtMultiplesOfTheExitIntervalButNotWithTheLastStep) {
    TrainOptions options;
    options.exit_interval = 2;
    options.train_iters = 4;
    RunLimits limits(options, 0);
    EXPECT_EQ(limits.reason(1, 0), StopReason::none);
    EXPECT_EQ(limits.reason(2, 0), StopReason::interval);
    EXPECT_EQ(limits.reason(3, 0), StopReason::none);
    EXPECT_EQ(limits.reason(4, 0), StopReason::none) << "the run is over";
    options.train_iters = 5;
    EXPECT_EQ(limits.reason(4, 0), StopReason::interval);
    EXPECT_EQ(limits.reason(4, limits.request(true)), StopReason::requested) << "more urgent";
    options.exit_interval = 0;
    EXPECT_EQ(limits.reason(4, 0), StopReason::none);
}

TEST(RunLimits, TakeAMomentThatIsReachedForOver) {
    TrainOptions options;
    options.exit_duration_minutes = 1;
    options.save_interval_minutes = 0.5;
    double now = 0;
    RunLimits limits(options, 0, [&now] { return now; });
    limits.step_took(10);
    now = 19.9;
    EXPECT_EQ(limits.request(false), 0);
    now = 20;  // the step ends at 30
    EXPECT_TRUE(limits.save_due(limits.request(false)));
    now = 50;
    EXPECT_EQ(limits.reason(1, limits.request(false)), StopReason::duration);
    options.exit_duration_minutes = {};
    options.save_interval_minutes = 0;
    EXPECT_EQ(limits.request(false), 0) << "neither is asked for";
}

/// Runs of a small model through train().
class EarlyEnd : public ::testing::Test {
protected:
    [[nodiscard]] TrainOptions options() const {
        TrainOptions options = runs_.options();
        options.save = runs_.path("saved");
        return options;
    }
    /// The only step that is saved.
    [[nodiscard]] int64_t saved_step() const {
        const std::vector<SavedStep> steps = complete_steps(runs_.path("saved"));
        EXPECT_EQ(steps.size(), 1u);
        return steps.empty() ? 0 : steps.front().step;
    }
    CheckpointRun runs_;
};

TEST_F(EarlyEnd, AtTheExitIntervalSavesAndGoesOnToTheNext) {
    TrainOptions options = this->options();
    const std::vector<std::string> whole = runs_.run(2, runs_.options());
    options.exit_interval = 4;
    std::vector<std::string> parts = runs_.run(2, options);
    EXPECT_EQ(parts.size(), 4u);
    EXPECT_EQ(saved_step(), 4);
    options.load = options.save;
    for (const std::string& step : runs_.run(2, options)) parts.push_back(step);
    EXPECT_EQ(parts, whole) << "the learning rate and all else go on where they were";
}

TEST_F(EarlyEnd, AfterTheMinutesSavesTheStepAndIsNoError) {
    TrainOptions options = this->options();
    options.exit_duration_minutes = 1e-9;
    EXPECT_EQ(runs_.run(3, options).size(), 1u);
    EXPECT_EQ(saved_step(), 1);
}

TEST_F(EarlyEnd, BySigtermOfOneRankSavesOnAllAndIsNoSuccess) {
    for (const bool save : {true, false}) {
        TrainOptions options = save ? this->options() : runs_.options();
        // Before a step, in its midst, or after it.
        const std::string what = sigterm_of_one_rank(
            options, 24, [&](const TrainOptions& told) { (void)runs_.run(3, told); });
        EXPECT_EQ(static_cast<int>(ExitCode::terminated), 143);
        EXPECT_THAT(what, StartsWith("SIGTERM: ended after step "));
        EXPECT_THAT(what, EndsWith(save ? "; saved " + step_folder(options.save, saved_step())
                                        : "; nothing was saved because --save is not set"));
    }
}

// Whichever step of a run is abandoned, what is saved are the bits of the one before.
TEST_F(EarlyEnd, AnAbandonedStepChangesNothingOnAnyRank) {
    TrainOptions every = this->options();
    every.save = runs_.path("every");
    every.save_interval = 1;
    every.global_batch_size = 48;  // some milliseconds, in which ranks look up
    (void)runs_.run(4, every);
    int abandoned = 0;
    for (int asked = 1; asked <= 60; asked += 3) {
        SCOPED_TRACE(asked);
        TrainOptions options = every;
        options.save = runs_.path("saved");
        options.save_interval = 0;
        std::filesystem::remove_all(options.save);
        const std::string what = sigterm_of_one_rank(
            options, asked, [&](const TrainOptions& told) { (void)runs_.run(4, told); });
        if (what.empty()) continue;
        const bool midst = what.find(" was abandoned; ") != std::string::npos;
        abandoned += midst ? 1 : 0;
        if (what.ends_with("; nothing was saved because this run has finished no step")) {
            EXPECT_TRUE(midst);
            EXPECT_THAT(complete_steps(options.save), IsEmpty());
            continue;
        }
        const int64_t step = saved_step();
        EXPECT_EQ(contents(step_folder(options.save, step)),
                  contents(step_folder(every.save, step)));
    }
    EXPECT_GE(abandoned, 5);
}

TEST_F(EarlyEnd, SavesByTime) {
    TrainOptions options = this->options();
    options.save_interval_minutes = 1e-9;
    (void)runs_.run(2, options);
    EXPECT_EQ(complete_steps(options.save).size(), 6u) << "every step takes longer";
    EXPECT_EQ(this->options().save_interval_minutes, 10);
}

}  // namespace
}  // namespace vocabpipe::testing
