// SPDX-License-Identifier: Apache-2.0
// A member of a team that is killed in the middle of an operation by pieces, under mpirun.
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

std::map<int, pid_t> pids_in(const std::string& output) {
    std::map<int, pid_t> pids;
    for (const std::string& line : lines_with(output, "rank ")) {
        int rank = 0;
        int pid = 0;
        if (std::sscanf(line.c_str(), "rank %d pid %d", &rank, &pid) == 2) pids[rank] = pid;
    }
    return pids;
}

void expect_gone(pid_t pid) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(5);
    while (::kill(pid, 0) == 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(::kill(pid, 0), -1) << "an orphan";
}

class TileLinkMember : public ::testing::TestWithParam<const char*> {};

TEST_P(TileLinkMember, ThatIsKilledEndsTheOthersWithOperationLayerPieceAndMember) {
    constexpr int kRanks = 3;
    for (const int victim : {0, 2}) {
        const TempFolder folder;
        Job job(folder, {VOCABPIPE_MPIRUN, "--oversubscribe", "-np", std::to_string(kRanks),
                         VOCABPIPE_TILE_LINK_RANKS, GetParam(), std::to_string(victim)});
        ASSERT_TRUE(job.wait_for_output(std::to_string(victim) + " stands", seconds(30)));
        for (int rank = 0; rank < kRanks; ++rank) {
            const std::string name = "rank " + std::to_string(rank);
            ASSERT_TRUE(job.wait_for_output(name + " pid ", seconds(5)));
            if (rank == victim) continue;
            ASSERT_TRUE(job.wait_for_output(name + " has what was released", seconds(30)));
        }
        const std::map<int, pid_t> pids = pids_in(job.output());
        ASSERT_EQ(pids.size(), static_cast<size_t>(kRanks)) << job.output();
        signal_process(pids.at(victim), SIGKILL);
        EXPECT_NE(job.wait(seconds(15)), 0);
        for (int rank = 0; rank < kRanks; ++rank) {
            expect_gone(pids.at(rank));
            const std::string name = "rank " + std::to_string(rank);
            const auto lines = lines_with(job.error(), "tile_link_ranks: error: " + name + ": ");
            if (rank == victim) continue;
            ASSERT_EQ(lines.size(), 1u) << name << " in:\n" << job.error();
            const std::string member = std::to_string(victim);
            EXPECT_THAT(lines.front(),
                        AllOf(HasSubstr(name +
                                        ": all-gather of x, layer 5: waits for piece 2 of "
                                        "member " +
                                        member + " (rank " + member + ") for "),
                              HasSubstr("; told to end: the launcher lost another rank")));
        }
        // What Open MPI says of a survivor; the first that ends so ends the others.
        EXPECT_THAT(job.error(), HasSubstr("MPI_ABORT was invoked on rank "));
        for (const std::string& line : lines_with(job.error(), "with errorcode ")) {
            EXPECT_EQ(line, "with errorcode 5.");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Through, TileLinkMember, ::testing::Values("mpi", "shared-memory"),
                         [](const auto& info) {
                             return std::string(info.param) == "mpi" ? "Mpi" : "SharedMemory";
                         });

}  // namespace
}  // namespace vocabpipe::testing
