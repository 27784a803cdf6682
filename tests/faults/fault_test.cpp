// SPDX-License-Identifier: Apache-2.0
// What becomes of a run when a rank dies, stops or is told to end: signals to real processes.
#include "tests/faults/launch.hpp"
#include "tests/support/full_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

namespace vocabpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr seconds kStart{30};  // on a machine that others use as well
constexpr seconds kEnd{15};

/// A dataset and a run on it that goes on for ever.
class Fault : public ::testing::Test {
protected:
    Fault() { write_dataset(data_, some_tokens(5000)); }

    [[nodiscard]] Arguments endless() const {
        return small_model(data_) + Arguments{"--train-iters", "10000000"};
    }
    /// Waits until steps run; all ranks' processes by rank.
    std::vector<pid_t> running(Job& job, int ranks) {
        if (!job.wait_for_output(" iteration 3/", kStart)) return {};
        return rank_processes(data_, ranks);
    }
    /// Every rank but `silent` says at which step and action it waited for which communication.
    static void expect_reports(const std::string& error, int ranks, int silent) {
        for (int rank = 0; rank < ranks; ++rank) {
            const auto lines =
                lines_with(error, "train_gpt: error: rank " + std::to_string(rank) + ": ");
            if (rank == silent)
                continue;  // one that was stopped may wake for the launcher's SIGTERM
            ASSERT_EQ(lines.size(), 1u) << "rank " << rank << " in:\n" << error;
            EXPECT_THAT(lines.front(), ContainsRegex("step [0-9]+: "));
            EXPECT_THAT(lines.front(), AnyOf(HasSubstr(": waits at "),
                                             HasSubstr(": has run all its passes and waits")));
            // On a busy machine it may stand before a communication that it has not started.
            EXPECT_THAT(
                lines.front(),
                AnyOf(ContainsRegex(" for (send|receive|broadcast|all_gather|all_to_all|gather) "
                                    ".*rank.* for [0-9.]+ s; "),
                      ContainsRegex(" for nothing that was started for [0-9.]+ s; ")));
        }
    }
    void expect_nothing_left(const std::set<std::string>& outputs = {}) {
        EXPECT_THAT(left_over(data_, seconds(5)), IsEmpty()) << "orphans";
        std::set<std::string> expected{"toy.bin", "toy.idx", "stdout", "stderr"};
        expected.insert(outputs.begin(), outputs.end());
        EXPECT_EQ(folder_.names(), expected);
    }

    TempFolder folder_;
    std::string data_ = folder_ / "toy";
};

TEST_F(Fault, KilledRankEndsTheRunAndTheSurvivorsSayWhatTheyWaitedFor) {
    const int rounds = full_run() ? 30 : 4;
    const unsigned seed = std::random_device()();
    std::mt19937 random(seed);
    for (int round = 0; round < rounds; ++round) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
        constexpr int kRanks = 4;
        const char* modes[] = {"none", "one_barrier", "two_barriers", "interlaced"};
        Job job(folder_,
                under_mpirun(kRanks, endless() + Arguments{"--vocab-mode", modes[round % 4]}));
        const std::vector<pid_t> pids = running(job, kRanks);
        ASSERT_EQ(pids.size(), static_cast<size_t>(kRanks));
        std::this_thread::sleep_for(milliseconds(random() % 300));
        const int victim = static_cast<int>(random() % kRanks);
        signal_process(pids[static_cast<size_t>(victim)], SIGKILL);
        EXPECT_NE(job.wait(kEnd), 0);
        expect_reports(job.error(), kRanks, victim);
        expect_nothing_left();
    }
}

TEST_F(Fault, StoppedRankEndsTheRunAtTheDeadlineWithExitCode5) {
    constexpr int kRanks = 3;
    for (const int victim : {0, 2}) {
        Job job(folder_,
                under_mpirun(kRanks, endless() + Arguments{"--distributed-timeout-seconds", "2"}));
        const std::vector<pid_t> pids = running(job, kRanks);
        ASSERT_EQ(pids.size(), static_cast<size_t>(kRanks));
        signal_process(pids[static_cast<size_t>(victim)], SIGSTOP);
        EXPECT_EQ(job.wait(kEnd), 5);
        expect_reports(job.error(), kRanks, victim);
        EXPECT_THAT(job.error(), HasSubstr("no progress within --distributed-timeout-seconds"));
        expect_nothing_left();
    }
}

/// The metrics file has whole lines, one for each step from the first to the last that was printed.
void expect_whole_metrics(const std::string& path, const std::string& output) {
    const std::string text = read_file(path);
    ASSERT_FALSE(text.empty());
    EXPECT_EQ(text.back(), '\n');
    std::istringstream in(text);
    int64_t step = 0;
    for (std::string line; std::getline(in, line);) {
        const auto object = nlohmann::json::parse(line);
        EXPECT_EQ(object.at("step").get<int64_t>(), ++step);
        for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second", "step_seconds"}) {
            EXPECT_TRUE(object.at(key).is_number()) << key;
        }
    }
    EXPECT_THAT(output, HasSubstr("ended after step " + std::to_string(step) + " of 10000000"));
}

TEST_F(Fault, Sigusr1ToMpirunEndsTheRunCleanlyAfterTheStep) {
    Job job(folder_, under_mpirun(2, endless() + Arguments{"--metrics", folder_ / "metrics"}));
    ASSERT_FALSE(running(job, 2).empty());
    job.signal(SIGUSR1);
    EXPECT_EQ(job.wait(kEnd), 0) << job.error();
    expect_whole_metrics(folder_ / "metrics", job.output());
    EXPECT_THAT(job.output(), HasSubstr("tokens/s "));
    EXPECT_THAT(lines_with(job.error(), "train_gpt: error:"), IsEmpty());
    expect_nothing_left({"metrics"});
}

TEST_F(Fault, Sigusr1AndSigtermEndAWorldOfThreadsAfterTheStepButSigtermIsNoSuccess) {
    for (const int number : {SIGUSR1, SIGTERM}) {
        Job job(folder_, on_threads(3, endless() + Arguments{"--metrics", folder_ / "metrics"}));
        ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
        job.signal(number);
        EXPECT_EQ(job.wait(kEnd), number == SIGUSR1 ? 0 : 143) << job.error();
        expect_whole_metrics(folder_ / "metrics", job.output() + job.error());
        if (number == SIGUSR1) {
            EXPECT_THAT(job.output(), HasSubstr("tokens/s "));
            EXPECT_EQ(job.error(), "");
        } else {
            EXPECT_THAT(job.error(),
                        ContainsRegex("^train_gpt: error: SIGTERM: ended after step "
                                      "[0-9]+ of 10000000;( step [0-9]+ was abandoned;)? "
                                      "nothing was saved"));
        }
        expect_nothing_left({"metrics"});
    }
}

TEST_F(Fault, SignalsOfBatchSystemsSaveTheStep) {
    struct {
        int number, exit_code;
        Arguments flags;
    } const cases[] = {{SIGUSR2, 0, {}},
                       {SIGXCPU, 128 + SIGXCPU, {}},
                       {SIGALRM, 0, {"--exit-signal", "SIGALRM"}},
                       {SIGTERM, 0, {"--exit-signal", "SIGTERM"}}};
    for (const auto& one : cases) {
        const std::string saved = folder_ / ("saved" + std::to_string(one.number));
        Job job(folder_, on_threads(2, endless() + Arguments{"--save", saved} + one.flags));
        ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
        job.signal(one.number);
        EXPECT_EQ(job.wait(kEnd), one.exit_code) << one.number << job.error();
        EXPECT_FALSE(std::filesystem::is_empty(saved)) << one.number;
        EXPECT_THAT(job.output() + job.error(), ContainsRegex("ended after step [0-9]+ of"));
    }
    Job job(folder_, on_threads(1, endless() + Arguments{"--exit-signal", "SIGKILL"}));
    EXPECT_EQ(job.wait(kEnd), 2);
    EXPECT_THAT(job.error(), HasSubstr("--exit-signal SIGKILL: must be one of SIGTERM, "));
}

TEST_F(Fault, SignalsThatWereIgnoredStayIgnored) {
    const std::string saved = folder_ / "saved";
    Job job(folder_, Arguments{"sh", "-c", "trap '' INT HUP; exec \"$0\" \"$@\""} +
                         on_threads(2, endless() + Arguments{"--save", saved}));
    ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
    job.signal(SIGINT);
    job.signal(SIGHUP);
    ASSERT_TRUE(job.wait_for_output(" iteration 30/", kStart));
    job.signal(SIGUSR1);
    EXPECT_EQ(job.wait(kEnd), 0) << job.error();
}

TEST_F(Fault, CtrlCAndHangUpSaveTheStepAndEndAWorldOfThreads) {
    for (const int number : {SIGINT, SIGHUP}) {
        const std::string saved = folder_ / ("saved" + std::to_string(number));
        Job job(folder_, on_threads(2, endless() + Arguments{"--save", saved}));
        ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
        job.signal(number);
        EXPECT_EQ(job.wait(kEnd), 128 + number) << job.error();
        EXPECT_THAT(job.error(),
                    ContainsRegex("^train_gpt: error: SIG(INT|HUP): ended after step [0-9]+ of "
                                  "10000000;( step [0-9]+ was abandoned;)? saved "
                                  ".*/step-[0-9]+\n$"));
    }
}

TEST_F(Fault, AReaderThatGoesAwaySavesTheStepAndEndsTheRun) {
    const std::string saved = folder_ / "saved";
    Job job(folder_, Arguments{"bash", "-c", "set -o pipefail; \"$@\" | head -n 12", "bash"} +
                         on_threads(2, endless() + Arguments{"--save", saved}));
    EXPECT_EQ(job.wait(kStart), 1) << job.error();
    EXPECT_THAT(job.error(), ContainsRegex("standard output: cannot write"));
    EXPECT_FALSE(std::filesystem::is_empty(saved));
}

TEST_F(Fault, OneCommandLineBeginsARunAndGoesOnWithIt) {
    const std::string saved = folder_ / "saved";
    const auto run = [&](const std::string& steps) {
        Arguments arguments = small_model(data_) + Arguments{"--train-iters", steps,    "--load",
                                                             saved + "/",     "--save", saved};
        Job job(folder_, on_threads(2, arguments));
        EXPECT_EQ(job.wait(kStart), 0) << job.error();
        return job.output();
    };
    EXPECT_THAT(run("2"), HasSubstr("no saved step found; starting a new run"));
    EXPECT_THAT(run("4"), HasSubstr("continuing after step 2"));
}

TEST_F(Fault, DataThatAreCutOffEndTheRunWithTheirName) {
    Job job(folder_, on_threads(2, endless()));
    ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
    std::filesystem::resize_file(data_ + ".bin", 0);
    EXPECT_EQ(job.wait(kEnd), 3) << job.error();
    EXPECT_THAT(job.error(), HasSubstr(data_ + ".bin: ends at byte "));
    EXPECT_EQ(lines_with(job.error(), "train_gpt: error: ").size(), 1u) << job.error();
}

TEST_F(Fault, DataThatAreReplacedAreToldOfAtTheEnd) {
    Job job(folder_, on_threads(2, endless()));
    ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
    write_dataset(folder_ / "new", some_tokens(5000));
    std::filesystem::rename(folder_ / "new.bin", data_ + ".bin");
    job.signal(SIGUSR1);
    EXPECT_EQ(job.wait(kEnd), 0) << job.error();
    EXPECT_EQ(lines_with(job.output(), "data: ").size(), 1u) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("data: " + data_ + ".bin: was replaced by another file"));
}

TEST_F(Fault, ADivergedRunCountsWhatItSkippedAndIsNoSuccess) {
    Job job(folder_,
            on_threads(2, small_model(data_) + Arguments{"--train-iters", "6", "--lr", "1e30"}));
    EXPECT_EQ(job.wait(kStart), 7) << job.output() << job.error();
    EXPECT_THAT(job.error(), HasSubstr("of 6 steps were skipped"));
}

TEST_F(Fault, SigtermEndsASingleRankThatNeverWaits) {
    Job job(folder_, Arguments{VOCABPIPE_TRAIN_GPT} + endless());  // without mpirun: one rank
    ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(kEnd), 143) << job.error();
    expect_nothing_left();
}

/// mpirun with `seconds` from one of its signals to the next, of which SIGKILL is the third.
Arguments with_grace(const char* seconds, Arguments command) {
    const Arguments grace{"--mca", "odls_base_sigkill_timeout", seconds};
    command.insert(command.begin() + 1, grace.begin(), grace.end());
    return command;
}

/// The step of the only line that says that the run was told to end was saved.
void expect_saved(const std::string& error) {
    const auto said = lines_with(error, "train_gpt: error: SIGTERM: ended after step ");
    if (said.empty() && has_open_mpi_5()) return;
    ASSERT_EQ(said.size(), 1u) << error;
    const std::string saved = said.front().substr(said.front().find("; saved ") + 8);
    EXPECT_TRUE(std::filesystem::is_regular_file(saved + "/training.json")) << said.front();
}

// A line for every step: more than the launcher's pipe holds while it waits and reads nothing.
TEST_F(Fault, CtrlCAndSigtermToMpirunSaveTheStepOnceWithinTenSeconds) {
    for (const int number : {SIGINT, SIGTERM}) {
        const std::string saved = "saved" + std::to_string(number);
        Job job(folder_,
                with_grace("2", under_mpirun(2, endless() + Arguments{"--save", folder_ / saved})));
        ASSERT_FALSE(running(job, 2).empty());
        job.signal(number);
        EXPECT_NE(job.wait(seconds(10)), 0);
        expect_saved(job.error());
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / saved), {}), 1);
        EXPECT_THAT(left_over(data_, seconds(0)), IsEmpty());
    }
}

// Steps take seconds, and mpirun kills two seconds after Ctrl-C.
TEST_F(Fault, ALongStepIsAbandonedAndTheOneBeforeItSaved) {
    const Arguments long_steps{
        "--num-layers",  "4",   "--hidden-size",      "256", "--num-attention-heads", "2",
        "--seq-length",  "256", "--vocab-size",       "257", "--global-batch-size",   "32",
        "--train-iters", "100", "--threads-per-rank", "1",   "--data-path",           data_};
    for (const bool all : {true, false}) {
        const std::string saved = folder_ / (all ? "all" : "one");
        Job job(folder_, under_mpirun(2, long_steps + Arguments{"--save", saved}));
        ASSERT_TRUE(job.wait_for_output(" iteration 2/", 4 * kStart)) << job.error();
        std::this_thread::sleep_for(milliseconds(400));
        if (all) {
            job.signal(SIGINT);
        } else {
            signal_process(rank_processes(data_, 2)[1], SIGTERM);
        }
        EXPECT_NE(job.wait(kEnd), 0);
        expect_saved(job.error());
        if (has_open_mpi_5()) continue;
        EXPECT_THAT(job.error(), ContainsRegex("SIGTERM: ended after step ([0-9]+) of 100; step "
                                               "[0-9]+ was abandoned; saved "));
    }
}

TEST_F(Fault, AReaderOfMpirunThatGoesAwaySavesTheStepAndEndsTheRun) {
    Job job(
        folder_,
        Arguments{"bash", "-c", "set -o pipefail; \"$@\" | head -n 12", "bash"} +
            with_grace("2", under_mpirun(2, endless() + Arguments{"--save", folder_ / "saved"})));
    EXPECT_NE(job.wait(kStart), 0);
    EXPECT_THAT(left_over(data_, seconds(10)), IsEmpty());
    const std::filesystem::directory_iterator steps(folder_ / "saved");
    EXPECT_TRUE(std::filesystem::is_regular_file(steps->path() / "training.json"));
    EXPECT_EQ(std::distance(begin(steps), end(steps)), 1);
    // Open MPI 4's mpirun may crash where it handles SIGPIPE, and passes no line on then.
    const bool crashed = job.error().find("Segmentation fault") != std::string::npos;
    if (!crashed) expect_saved(job.error());
}

TEST_F(Fault, ASecondCtrlCToMpirunEndsAtOnce) {
    Job job(folder_, with_grace("20", under_mpirun(2, endless())));
    ASSERT_FALSE(running(job, 2).empty());
    job.signal(SIGINT);
    std::this_thread::sleep_for(milliseconds(500));
    job.signal(SIGINT);
    EXPECT_NE(job.wait(seconds(5)), 0);
    EXPECT_THAT(left_over(data_, seconds(5)), IsEmpty());
}

// mpirun wakes ranks with the signal by which it announces their end.
TEST_F(Fault, ASuspendedRunThatWakesGoesOn) {
    Job job(folder_, under_mpirun(2, endless()));
    ASSERT_FALSE(running(job, 2).empty());
    job.signal(SIGTSTP);
    std::this_thread::sleep_for(milliseconds(1200));
    const size_t before = job.output().size();
    job.signal(SIGCONT);
    std::this_thread::sleep_for(milliseconds(1500));
    EXPECT_GT(job.output().size(), before);
    EXPECT_EQ(train_processes(data_).size(), 2u) << job.error();
}

TEST_F(Fault, SigtermAndSigintToMpirunEndEveryRank) {
    for (const int number : {SIGTERM, SIGINT}) {
        Job job(folder_, under_mpirun(4, endless() + Arguments{"--metrics", folder_ / "metrics"}));
        ASSERT_FALSE(running(job, 4).empty());
        job.signal(number);
        (void)job.wait(kEnd);  // the launcher's own code
        expect_nothing_left({"metrics"});
        EXPECT_EQ(read_file(folder_ / "metrics").back(), '\n');
    }
}

TEST_F(Fault, RanksEndWhenMpirunItselfIsKilled) {
    Job job(folder_, under_mpirun(3, endless()));
    ASSERT_FALSE(running(job, 3).empty());
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait(kEnd), 128 + SIGKILL);
    EXPECT_THAT(left_over(data_, kEnd), IsEmpty());
}

}  // namespace
}  // namespace vocabpipe::testing
