// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks share memory: the same losses as through MPI, a /dev/shm that is too small, and
// nothing left in it after ends and kills.
#include "tests/faults/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Segments in /dev/shm that one of the processes has made.
std::vector<std::string> segments_of(const std::vector<pid_t>& pids) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
        const std::string name = entry.path().filename();
        for (const pid_t pid : pids) {
            if (name.starts_with("vocabpipe-" + std::to_string(pid) + "-")) found.push_back(name);
        }
    }
    return found;
}

class SharedMemoryRun : public ::testing::Test {
protected:
    SharedMemoryRun() { write_dataset(data_, some_tokens(5000)); }

    [[nodiscard]] Arguments endless() const {
        return small_model(data_) + Arguments{"--train-iters", "10000000"};
    }
    /// Losses and gradient norms of three steps, as text; `before`: what starts mpirun.
    std::string losses(const Arguments& before, const Arguments& flags, std::string& error) {
        const std::string metrics = folder_ / "metrics";
        std::filesystem::remove(metrics);
        Job job(folder_,
                before + under_mpirun(2, small_model(data_) +
                                             Arguments{"--train-iters", "3", "--metrics", metrics} +
                                             flags));
        EXPECT_EQ(job.wait(seconds(60)), 0) << job.error();
        error = job.error();
        std::string text;
        std::istringstream in(read_file(metrics));
        for (std::string line; std::getline(in, line);) {
            const auto step = nlohmann::json::parse(line);
            text += step.at("loss").dump() + " " + step.at("grad_norm").dump() + "\n";
        }
        return text;
    }

    TempFolder folder_;
    std::string data_ = folder_ / "toy";
};

TEST_F(SharedMemoryRun, HasTheLossesOfMpiAlsoWhereDevShmIsTooSmallWhichOneLineSays) {
    std::string error;
    const std::string expected = losses({}, {"--transport-on-host", "mpi"}, error);
    EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), 3);
    EXPECT_THAT(lines_with(error, "train_gpt: "), IsEmpty());
    EXPECT_EQ(losses({}, {}, error), expected);
    EXPECT_THAT(lines_with(error, "train_gpt: "), IsEmpty());

    const Arguments small{"unshare",
                          "--mount",
                          "sh",
                          "-c",
                          "mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\"",
                          "sh"};
    Job probe(folder_, small + Arguments{"true"});
    if (probe.wait(seconds(10)) != 0) {
        GTEST_SKIP() << "a /dev/shm of its own needs root: " << probe.error();
    }
    EXPECT_EQ(losses(small, {}, error), expected);
    const auto lines = lines_with(error, "train_gpt: ");
    ASSERT_EQ(lines.size(), 1u) << error;
    EXPECT_THAT(lines.front(),
                ContainsRegex("^train_gpt: no shared memory between the ranks of .*: /dev/shm has "
                              "no room for [0-9]+ bytes: No space left on device; they use MPI; "));
    EXPECT_EQ(losses(small, {"--transport-on-host", "mpi"}, error), expected);
    EXPECT_THAT(lines_with(error, "train_gpt: "), IsEmpty());
}

TEST_F(SharedMemoryRun, LeavesNothingInDevShmAfterItsEndAndAfterKills) {
    constexpr int kRanks = 3;
    const Arguments flags{"--transport-on-host", "shared-memory"};
    enum class Ending { stop, kill_a_rank, kill_the_launcher };
    for (const Ending ending : {Ending::stop, Ending::kill_a_rank, Ending::kill_the_launcher}) {
        Job job(folder_, under_mpirun(kRanks, endless() + flags));
        ASSERT_TRUE(job.wait_for_output(" iteration 3/", seconds(30)));
        const std::vector<pid_t> pids = rank_processes(data_, kRanks);
        ASSERT_EQ(pids.size(), static_cast<size_t>(kRanks));
        EXPECT_THAT(segments_of(pids), IsEmpty()) << "already while it runs";
        if (ending == Ending::stop) job.signal(SIGUSR1);
        if (ending == Ending::kill_a_rank) signal_process(pids[1], SIGKILL);
        if (ending == Ending::kill_the_launcher) job.signal(SIGKILL);
        const int code = job.wait(seconds(20));
        EXPECT_EQ(code == 0, ending == Ending::stop) << job.error();
        EXPECT_THAT(left_over(data_, seconds(15)), IsEmpty());
        EXPECT_THAT(segments_of(pids), IsEmpty());
        if (ending != Ending::kill_a_rank) continue;
        for (const int rank : {0, 2}) {
            const auto lines =
                lines_with(job.error(), "train_gpt: error: rank " + std::to_string(rank) + ": ");
            ASSERT_EQ(lines.size(), 1u) << job.error();
            EXPECT_THAT(lines.front(), ContainsRegex("step [0-9]+: .*waits.* for "));
            EXPECT_THAT(lines.front(), HasSubstr("told to end"));
        }
    }
}

TEST_F(SharedMemoryRun, IsRefusedBetweenThreads) {
    Job job(folder_,
            on_threads(2, small_model(data_) + Arguments{"--transport-on-host", "shared-memory"}));
    EXPECT_EQ(job.wait(seconds(30)), 2);
    EXPECT_THAT(job.error(),
                HasSubstr("--transport-on-host shared-memory: is for --transport mpi"));
}

}  // namespace
}  // namespace vocabpipe::testing
