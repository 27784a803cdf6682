// SPDX-License-Identifier: Apache-2.0
// A run whose ranks are killed again and again, also while they save, is the run that was left
// alone.
#include "tests/faults/launch.hpp"
#include "tests/support/full_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

namespace vocabpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr seconds kStart{30};  // on a machine that others use as well
constexpr seconds kEnd{15};
constexpr int kRanks = 2;

/// Complete steps and, by another name, what a killed save left.
std::set<std::string> names_in(const std::string& folder) {
    std::set<std::string> names;
    std::error_code ignored;  // the folder changes while it is read
    for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end;
         at.increment(ignored)) {
        names.insert(at->path().filename());
    }
    return names;
}

class CheckpointFault : public ::testing::Test {
protected:
    CheckpointFault() { write_dataset(data_, some_tokens(5000)); }

    [[nodiscard]] Arguments endless(const std::string& metrics) const {
        return small_model(data_) + Arguments{"--train-iters", "10000000", "--bf16", "--metrics",
                                              folder_ / metrics,
                                              // Long enough that a save takes as long as a step.
                                              "--hidden-size", "128"};
    }

    [[nodiscard]] bool is_saving() const {
        const std::set<std::string> names = names_in(saved_);
        return std::any_of(names.begin(), names.end(),
                           [](const std::string& name) { return name.ends_with(".partial"); });
    }

    /// Some milliseconds into a save, which all of `pids` are certain to be in when one is killed.
    void kill_while_saving(const std::vector<pid_t>& pids, pid_t victim, milliseconds into) const {
        for (int look = 0; look < 10000; ++look) {
            if (!is_saving()) {
                std::this_thread::sleep_for(milliseconds(1));
                continue;
            }
            std::this_thread::sleep_for(into);
            for (const pid_t pid : pids) signal_process(pid, SIGSTOP);
            const bool still = is_saving();
            if (still) signal_process(victim, SIGKILL);
            for (const pid_t pid : pids) {
                if (!still || pid != victim) signal_process(pid, SIGCONT);
            }
            if (still) return;
        }
        ADD_FAILURE() << "no save within 10 s";
    }

    /// Runs are killed and go on, alternately at any time and while saving, by turns with and
    /// without --async-save; then one is stopped, and one that was never killed is compared.
    void kill_again_and_again(bool mpi);

    TempFolder folder_;
    std::string data_ = folder_ / "toy";
    std::string saved_ = folder_ / "steps";
};

void CheckpointFault::kill_again_and_again(bool mpi) {
    const int kills = full_run() ? 20 : 4;
    const unsigned seed = std::random_device()();
    std::mt19937 random(seed);
    std::map<int64_t, std::string> found;
    int saves_cut = 0;
    for (int kill = 0; kill <= kills; ++kill) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " kill " + std::to_string(kill));
        Arguments arguments =
            endless("metrics") +
            Arguments{"--save", saved_, "--save-interval", "1", "--save-total-limit", "2"};
        if (kill > 0) arguments = arguments + Arguments{"--load", saved_};
        if (kill / 2 % 2 == 1) arguments.emplace_back("--async-save");
        Job job(folder_, mpi ? under_mpirun(kRanks, arguments) : on_threads(kRanks, arguments));
        if (!job.wait_for_output("saved " + saved_, kStart)) return;
        if (kill > 0) {
            EXPECT_THAT(job.output(), HasSubstr("checksums match"));
        }
        const std::vector<pid_t> pids =
            mpi ? rank_processes(data_, kRanks) : std::vector<pid_t>{job.pid()};
        ASSERT_EQ(pids.size(), static_cast<size_t>(mpi ? kRanks : 1));
        const pid_t victim = pids[random() % pids.size()];
        if (kill == kills) {
            job.signal(SIGUSR1);
            EXPECT_EQ(job.wait(kEnd), 0) << job.error();
        } else if (kill % 2 == 0) {
            std::this_thread::sleep_for(milliseconds(random() % 200));
            signal_process(victim, SIGKILL);
            EXPECT_NE(job.wait(kEnd), 0);
        } else {
            // The first time the rank that has the folder, which certainly leaves a partial one.
            kill_while_saving(pids, kill == 1 ? pids.front() : victim, milliseconds(random() % 10));
            EXPECT_NE(job.wait(kEnd), 0);
        }
        EXPECT_THAT(left_over(data_, kEnd), IsEmpty());
        saves_cut += is_saving();
        for (const auto& [step, values] : curve(folder_ / "metrics")) {
            const auto [at, first] = found.emplace(step, values);
            EXPECT_EQ(at->second, values) << "step " << step << " ran twice and differs";
        }
    }
    ASSERT_FALSE(found.empty());
    const int64_t last = found.rbegin()->first;
    std::printf("%lld steps over %d kills, %d of them while saving\n", static_cast<long long>(last),
                kills, saves_cut);
    EXPECT_GE(saves_cut, mpi ? 1 : kills / 2) << "of one process each such kill cuts one";
    EXPECT_EQ(found.size(), static_cast<size_t>(last)) << "a step is missing";
    EXPECT_EQ(curve(folder_ / "metrics"), found) << "the file of all runs has every step";
    EXPECT_LE(names_in(saved_).size(), 2U) << "the last save removes what the killed ones left";

    Job whole(folder_, on_threads(kRanks, endless("whole")));
    ASSERT_TRUE(whole.wait_for_output(" iteration " + std::to_string(last) + "/", seconds(60)));
    whole.signal(SIGUSR1);
    EXPECT_EQ(whole.wait(kEnd), 0);
    const std::map<int64_t, std::string> expected = curve(folder_ / "whole");
    for (const auto& [step, values] : found) {
        ASSERT_TRUE(expected.contains(step));
        ASSERT_EQ(values, expected.at(step)) << "step " << step;
    }
}

TEST_F(CheckpointFault, KilledRanksLeaveAUsableStepAndTheCurveIsTheUninterruptedOne) {
    kill_again_and_again(true);
}

TEST_F(CheckpointFault, AKilledProcessOfThreadsLeavesAUsableStepAndTheSameCurve) {
    kill_again_and_again(false);
}

TEST_F(CheckpointFault, OneRankThatCannotWriteEndsAllAlikeAndLeavesTheStepsBefore) {
    for (const bool async : {false, true}) {
        SCOPED_TRACE(async ? "--async-save" : "synchronous");
        std::filesystem::remove_all(saved_);
        Arguments arguments =
            endless("metrics") +
            Arguments{"--save", saved_, "--save-interval", "1", "--save-total-limit", "2"};
        if (async) arguments.emplace_back("--async-save");
        Job job(folder_, under_mpirun(kRanks, arguments));
        ASSERT_TRUE(job.wait_for_output("saved " + saved_, kStart));
        const std::vector<pid_t> pids = rank_processes(data_, kRanks);
        ASSERT_EQ(pids.size(), static_cast<size_t>(kRanks));
        // Rank 1's files end here from now on; rank 0 makes and publishes steps as before.
        const rlimit small{4096, 4096};
        ASSERT_EQ(::prlimit(pids[1], RLIMIT_FSIZE, &small, nullptr), 0);
        EXPECT_EQ(job.wait(kEnd), 1);
        const std::vector<std::string> lines = lines_with(job.error(), "train_gpt: ");
        ASSERT_EQ(lines.size(), 1U) << job.error();
        EXPECT_THAT(lines[0], HasSubstr(".safetensors: cannot write: File too large"));
        const std::set<std::string> left = names_in(saved_);
        EXPECT_LE(left.size(), 2U);
        for (const std::string& name : left) EXPECT_THAT(name, ::testing::StartsWith("step-"));
        Job next(folder_, on_threads(3, endless("next") + Arguments{"--load", saved_}));
        ASSERT_TRUE(next.wait_for_output("checksums match", kStart));
        next.signal(SIGUSR1);
        EXPECT_EQ(next.wait(kEnd), 0) << next.error();
    }
}

TEST_F(CheckpointFault, Sigusr1SavesTheLastStepAndTheRunGoesOnAtOtherRanks) {
    const Arguments save{"--save", saved_};
    Job first(folder_, under_mpirun(2, endless("first") + save));
    ASSERT_TRUE(first.wait_for_output(" iteration 3/", kStart));
    first.signal(SIGUSR1);
    EXPECT_EQ(first.wait(kEnd), 0) << first.error();
    EXPECT_THAT(first.output(), HasSubstr("saved " + saved_));
    const int64_t stopped = curve(folder_ / "first").rbegin()->first;

    Job second(folder_, on_threads(3, endless("second") + save + Arguments{"--load", saved_}));
    const std::string next = std::to_string(stopped + 1);
    ASSERT_TRUE(second.wait_for_output(" iteration " + next + "/", kStart));
    second.signal(SIGUSR1);
    EXPECT_EQ(second.wait(kEnd), 0) << second.error();
    EXPECT_EQ(curve(folder_ / "second").begin()->first, stopped + 1);
}

}  // namespace
}  // namespace vocabpipe::testing
