// SPDX-License-Identifier: Apache-2.0
// A member of a ring that is killed while the others wait for its signals, under mpirun.
#include "tests/faults/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <thread>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_gone(pid_t pid) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(5);
    while (::kill(pid, 0) == 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(::kill(pid, 0), -1) << "a spinner";
}

class SymmetricMemoryMember : public ::testing::TestWithParam<const char*> {};

TEST_P(SymmetricMemoryMember, ThatIsKilledLeavesNoSpinner) {
    constexpr int kRanks = 3;
    constexpr int kVictim = 1;
    const TempFolder folder;
    Job job(folder, {VOCABPIPE_MPIRUN, "--oversubscribe", "-np", std::to_string(kRanks),
                     VOCABPIPE_SYMMETRIC_MEMORY_RANKS, GetParam(), std::to_string(kVictim)});
    ASSERT_TRUE(job.wait_for_output(std::to_string(kVictim) + " stands", seconds(30)));
    std::map<int, pid_t> pids;
    for (int rank = 0; rank < kRanks; ++rank) {
        ASSERT_TRUE(job.wait_for_output("rank " + std::to_string(rank) + " pid ", seconds(5)));
    }
    for (const std::string& line : lines_with(job.output(), "rank ")) {
        int rank = 0;
        int pid = 0;
        if (std::sscanf(line.c_str(), "rank %d pid %d", &rank, &pid) == 2) pids[rank] = pid;
    }
    ASSERT_EQ(pids.size(), static_cast<size_t>(kRanks)) << job.output();
    // Until rank 2 waits for the tile of round 5; rank 0 soon lacks one of rank 2.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    signal_process(pids.at(kVictim), SIGKILL);
    EXPECT_NE(job.wait(seconds(15)), 0);
    for (const auto& [rank, pid] : pids) expect_gone(pid);
    const auto lines = lines_with(job.error(), "symmetric_memory_ranks: error: rank 2: ");
    ASSERT_EQ(lines.size(), 1u) << job.error();
    EXPECT_THAT(
        lines.front(),
        AllOf(HasSubstr("rank 2: ring of x: waits for tile 5 (signal 0, raised 4 of 5 times) "
                        "of member 1 (rank 1) for "),
              HasSubstr("; told to end: the launcher lost another rank")));
}

INSTANTIATE_TEST_SUITE_P(Through, SymmetricMemoryMember, ::testing::Values("mpi", "shared-memory"),
                         [](const auto& info) {
                             return std::string(info.param) == "mpi" ? "Mpi" : "SharedMemory";
                         });

}  // namespace
}  // namespace vocabpipe::testing
