// SPDX-License-Identifier: Apache-2.0
// What becomes of a run when one of the ranks that share a stage, or its experts, is killed in the
// middle of a layer.
#include "tests/faults/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

constexpr seconds kStart{60};  // on a machine that others use as well
constexpr seconds kEnd{30};
constexpr int kRanks = 4;    // 2 stages of 2 ranks each
constexpr int kRounds = 40;  // of which one has to find the other rank inside a layer

struct Team {
    const char* name;
    const char* transport;  ///< --transport-on-host
    Arguments flags;
    const char* in_layer;    ///< what operations of a layer are for
    const char* operations;  ///< and what they are, as a regular expression
    friend void PrintTo(const Team& team, std::ostream* out) { *out << team.name; }
};

Team tensor_team(const char* name, const char* transport) {
    return {name,
            transport,
            {"--tensor-model-parallel-size", "2"},
            " for transformer.h.",
            "(all-gather|reduce-scatter) for transformer\\.h\\.[0-9]+\\.(attn|mlp)\\.[a-z_]+"};
}
Team expert_team(const char* name, const char* transport) {
    return {name,
            transport,
            {"--expert-model-parallel-size", "2", "--model-type", "mixtral", "--num-experts", "4"},
            " for model.layers.",
            "(choices|dispatch|combine) for "
            "model\\.layers\\.[0-9]+\\.block_sparse_moe\\.[a-z_.]+"};
}

class TeamFault : public ::testing::TestWithParam<Team> {
protected:
    TeamFault() { write_dataset(data_, some_tokens(5000)); }

    /// Nearly all of whose time is spent in layers; goes on for ever.
    [[nodiscard]] Arguments endless() const {
        return small_model(data_) +
               Arguments{"--num-layers",
                         "16",
                         "--train-iters",
                         "10000000",
                         "--vocab-mode",
                         "none",
                         "--transport-on-host",
                         GetParam().transport,
                         "--pipeline-model-parallel-size",
                         "2"} +
               GetParam().flags;
    }
    /// The lines in which a rank says how it ended.
    static std::vector<std::string> lines_of(int rank, const std::string& error) {
        return lines_with(error, "train_gpt: error: rank " + std::to_string(rank) + ": ");
    }

    TempFolder folder_;
    std::string data_ = folder_ / "toy";
};

// Where it is killed is left to chance; in which round it was inside a layer, the other one says.
TEST_P(TeamFault, KilledInALayerEndsTheRunAndTheOtherNamesOperationAndMember) {
    bool in_a_layer = false;
    for (int round = 0; round < kRounds && !(in_a_layer && round >= 2); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        const int victim = round % kRanks;
        const int other = victim ^ 1;  // of the same stage
        Job job(folder_, under_mpirun(kRanks, endless()));
        ASSERT_TRUE(job.wait_for_output(" iteration 3/", kStart));
        const std::vector<pid_t> pids = rank_processes(data_, kRanks);
        ASSERT_EQ(pids.size(), static_cast<size_t>(kRanks));
        std::this_thread::sleep_for(milliseconds(7 * round));
        signal_process(pids[static_cast<size_t>(victim)], SIGKILL);
        EXPECT_NE(job.wait(kEnd), 0);  // the launcher's own code
        EXPECT_THAT(left_over(data_, seconds(5)), IsEmpty()) << "orphans";
        const std::string error = job.error();
        for (int rank = 0; rank < kRanks; ++rank) {
            if (rank == victim) continue;
            const auto lines = lines_of(rank, error);
            ASSERT_EQ(lines.size(), 1u) << "rank " << rank << " in:\n" << error;
            EXPECT_THAT(lines.front(),
                        AllOf(AnyOf(HasSubstr(GetParam().in_layer), HasSubstr(": waits at "),
                                    HasSubstr(": has run all its passes and waits"),
                                    HasSubstr(" waited for the other ranks between steps")),
                              HasSubstr("told to end")));
        }
        // What Open MPI says of a survivor; the first that ends so ends the others.
        const bool five = has_open_mpi_5();
        const auto codes = lines_with(error, five ? "Errorcode: " : "with errorcode ");
        EXPECT_FALSE(codes.empty()) << error;
        for (const std::string& line : codes) {
            EXPECT_EQ(line, five ? "Errorcode: 5" : "with errorcode 5.");
        }

        const std::string line = lines_of(other, error).front();
        if (line.find(GetParam().in_layer) == std::string::npos) continue;
        in_a_layer = true;
        EXPECT_THAT(
            line, ContainsRegex(": " + std::string(GetParam().operations) +
                                ": waits (for|until it is rid of) "
                                "piece [0-9]+ of "
                                "member " +
                                std::to_string(victim % 2) + " \\(rank " + std::to_string(victim) +
                                "\\) for [0-9.]+ s; told to end: the launcher lost "
                                "another rank"));
    }
    EXPECT_TRUE(in_a_layer);
}

INSTANTIATE_TEST_SUITE_P(Through, TeamFault,
                         ::testing::Values(tensor_team("TensorMpi", "mpi"),
                                           tensor_team("TensorSharedMemory", "shared-memory"),
                                           expert_team("ExpertsSharedMemory", "shared-memory")),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace vocabpipe::testing
