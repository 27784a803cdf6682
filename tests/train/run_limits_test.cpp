// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/run_limits.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {
namespace {

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
        std::atomic<int> asked{0};
        options.terminated = [&] {
            return ++asked == 5 ? SIGTERM : 0;
        };  // one of three ranks, in step 2
        try {
            (void)runs_.run(3, options);
            ADD_FAILURE() << "a success";
        } catch (const AgreedError& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::terminated);
            EXPECT_EQ(static_cast<int>(error.exit_code()), 143);
            EXPECT_EQ(std::string(error.what()),
                      "SIGTERM: ended after step 2 of 6; " +
                          (save ? "saved " + step_folder(options.save, 2)
                                : std::string("nothing was saved because --save is not set")));
        }
        if (save) {
            EXPECT_EQ(saved_step(), 2);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
