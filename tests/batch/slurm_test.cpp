// SPDX-License-Identifier: Apache-2.0
// examples/slurm.sbatch on a real Slurm of two nodes: whatever ends a start of the job, the run is
// the one that nobody interrupted.
#include "tests/batch/clone.hpp"
#include "tests/batch/slurm_cluster.hpp"
#include "tests/support/full_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kRanks = 4;
constexpr seconds kStart{60};  // on a machine that others use as well
constexpr seconds kEnd{180};
constexpr int64_t kEndless = 100000;

class SlurmScript : public ::testing::Test {
protected:
    void SetUp() override {
        if (!full_run()) {
            GTEST_SKIP() << "SKIPPED: takes minutes: tests/run.sh --full, or VOCABPIPE_FULL=1";
        }
        slurm_.start();
        ASSERT_FALSE(HasFailure());
        if (!slurm_.missing().empty()) GTEST_SKIP() << "SKIPPED: " << slurm_.missing();
        make_clone(clone_, flags("$(cat " + steps_ + ")", clone_ + "/metrics"));
        set_steps(kEndless);
        const auto commands = documented_commands("On a Slurm cluster");
        const auto line = std::find_if(commands.begin(), commands.end(), [](const auto& command) {
            return command.starts_with("sbatch ");
        });
        ASSERT_NE(line, commands.end()) << "docs/clusters.md says how to submit";
        documented_ = *line;
    }
    void TearDown() override {
        if (!slurm_.missing().empty()) return;
        EXPECT_THAT(left_over(clone_, seconds(60)), IsEmpty());
    }

    /// What makes the documented run small. Its first start has no end, so that it is interrupted
    /// however fast this machine is.
    [[nodiscard]] Arguments flags(const std::string& steps, const std::string& metrics) const {
        return small_model(clone_ + "/book") +
               Arguments{"--train-iters",  steps, "--lr-decay-iters", std::to_string(kEndless),
                         "--log-interval", "1",   "--metrics",        metrics};
    }
    void set_steps(int64_t steps) const { write_file(steps_, std::to_string(steps)); }

    /// The documented line with other options of sbatch before and flags of train_gpt behind.
    [[nodiscard]] std::string submit(const std::string& options,
                                     const std::string& flags = "") const {
        std::string line = documented_;
        line.insert(line.find("examples/slurm.sbatch"), "--output log " + options + " ");
        return slurm_.submit(clone_, line + " " + flags);
    }
    [[nodiscard]] std::string log() const {
        const std::string path = clone_ + "/log";
        return std::filesystem::exists(path) ? read_file(path) : "";
    }
    /// Until some steps have been made.
    [[nodiscard]] bool wait_for_steps() const {
        const auto deadline = std::chrono::steady_clock::now() + kStart;
        while (log().find(" iteration 3/") == std::string::npos) {
            if (std::chrono::steady_clock::now() > deadline) {
                ADD_FAILURE() << "no step in the log:\n" << log();
                return false;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        return true;
    }
    /// A start has ended early, and the next one goes on from what it saved to the end.
    void expect_to_go_on(const std::string& job) const {
        ASSERT_TRUE(slurm_.wait_for(job, "Restarts", "1", kEnd)) << log();
        const auto saved = curve(clone_ + "/metrics").rbegin()->first;
        EXPECT_THAT(log(), HasSubstr("saved run-" + job + "/step-"));
        set_steps(saved + 3);
        ASSERT_TRUE(slurm_.wait_for(job, "JobState", "COMPLETED", kEnd)) << log();
        EXPECT_THAT(log(), HasSubstr("continuing after step " + std::to_string(saved) + " "));

        const TempFolder other;
        const Arguments whole = Arguments{"--config", VOCABPIPE_SOURCE "/examples/run.toml"} +
                                flags(std::to_string(saved + 3), other / "metrics");
        Job run(other, on_threads(kRanks, whole));
        ASSERT_EQ(run.wait(kEnd), 0) << run.error();
        EXPECT_EQ(curve(clone_ + "/metrics"), curve(other / "metrics"));
    }

    SlurmCluster slurm_;
    TempFolder folder_;
    std::string clone_ = folder_ / "clone";
    std::string steps_ = folder_ / "steps";
    std::string documented_;
};

/// Both launchers, whichever the script would choose.
class SlurmLaunchers : public SlurmScript, public ::testing::WithParamInterface<const char*> {};

TEST_P(SlurmLaunchers, SaveOnTheSignalAndGoOn) {
    const std::string job =
        submit("--export=ALL,VOCABPIPE_LAUNCHER='" + std::string(GetParam()) + "'");
    ASSERT_TRUE(wait_for_steps());
    slurm_.type(clone_, "scancel --signal USR1 --batch " + job);
    expect_to_go_on(job);
    EXPECT_THAT(log(), Not(HasSubstr("train_gpt: error")));
}
INSTANTIATE_TEST_SUITE_P(Launched, SlurmLaunchers,
                         ::testing::Values("mpirun --bind-to none",
                                           "srun --mpi=pmix --kill-on-bad-exit=1"),
                         [](const auto& of) {
                             return std::string(of.param).substr(0,
                                                                 std::string(of.param).find(' '));
                         });

TEST_F(SlurmScript, GoesOnAfterItsTimeLimit) {
    // Slurm looks every half minute whom it has to tell, and may do so a minute early.
    const std::string job = submit("--time 2 --signal=B:USR1@60");
    expect_to_go_on(job);
    EXPECT_THAT(log(), Not(HasSubstr("train_gpt: error")));
}

TEST_F(SlurmScript, GoesOnWhenTheSignalCameBeforeTheRanksCouldTakeIt) {
    set_steps(3);
    const std::string started = folder_ / "started";
    const std::string program = folder_ / "late";
    write_file(program, "#!/bin/sh\nif [ ! -e " + started + " ]; then touch " + started +
                            "; exec sleep 100; fi\nexec build/bin/train_gpt \"$@\"\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    const std::string job = submit("--export=ALL,VOCABPIPE_TRAIN_GPT=" + program);
    const auto deadline = std::chrono::steady_clock::now() + kStart;
    while (!std::filesystem::exists(started) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    slurm_.type(clone_, "scancel --signal USR1 --batch " + job);
    ASSERT_TRUE(slurm_.wait_for(job, "JobState", "COMPLETED", kEnd)) << log();
    EXPECT_EQ(slurm_.of_job(job, "Restarts"), "1");
    EXPECT_EQ(curve(clone_ + "/metrics").size(), 3);
}

TEST_F(SlurmScript, GoesOnAfterAnotherJobHasPreemptedIt) {
    const std::string job = submit("");
    ASSERT_TRUE(wait_for_steps());
    const std::string urgent =
        slurm_.submit(clone_,
                      "sbatch --partition urgent --nodes 2 --exclusive --output /dev/null "
                      "--wrap 'sleep 1'");
    ASSERT_TRUE(slurm_.wait_for(urgent, "JobState", "COMPLETED", kStart));
    expect_to_go_on(job);
    EXPECT_THAT(log(), ContainsRegex("train_gpt: error: SIGTERM: .*saved"));
}

TEST_F(SlurmScript, SavesWhenItIsCancelledAndIsNotRequeued) {
    const std::string job = submit("");
    ASSERT_TRUE(wait_for_steps());
    slurm_.type(clone_, "scancel " + job);
    const auto is_over = [&] { return log().find("; saved run-" + job) != std::string::npos; };
    const auto deadline = std::chrono::steady_clock::now() + kStart;
    while (!is_over() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_THAT(log(), ContainsRegex("train_gpt: error: SIGTERM: .*saved"));
    EXPECT_TRUE(slurm_.wait_for(job, "JobState", "CANCELLED", kStart));
    EXPECT_EQ(slurm_.of_job(job, "Restarts"), "0");
}

TEST_F(SlurmScript, EndsWithAnErrorAndIsNotRequeued) {
    const std::string job = submit("", "--no-such-flag");
    ASSERT_TRUE(slurm_.wait_for(job, "JobState", "FAILED", kStart)) << log();
    EXPECT_EQ(slurm_.of_job(job, "Restarts"), "0");
    EXPECT_THAT(log(), HasSubstr("--no-such-flag"));
}

TEST_F(SlurmScript, DoesNotStartRanksThatFindNoWorld) {
    const std::string said = slurm_.type(
        clone_, "srun --nodes 2 --ntasks 2 --mpi=none build/bin/train_gpt 2>&1; echo code $?");
    EXPECT_THAT(said, HasSubstr("SLURM_STEP_NUM_TASKS=2: srun started 2 processes"));
    EXPECT_THAT(said, HasSubstr("type srun --mpi=pmix -n 2 and this command"));
    EXPECT_THAT(said, HasSubstr("code 2"));
}

}  // namespace
}  // namespace vocabpipe::testing
