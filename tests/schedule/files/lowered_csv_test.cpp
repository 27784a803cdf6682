// SPDX-License-Identifier: Apache-2.0
// PyTorch's lowered files (compute_comms): communication is checked, then inferred anew.
#include "vocabpipe/make_schedule.hpp"

#include "tests/schedule/files/parse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 1F1B, p = 2, m = 2.
constexpr std::string_view kLoweredOneFOneB =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";

std::string with(std::string_view from, std::string_view to,
                 std::string_view text = kLoweredOneFOneB) {
    std::string changed(text);
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
}

// The same as PyTorch 2.15 writes it, without the cells of sharded weights.
constexpr std::string_view kWaiting =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0REDUCE_GRAD,"
    "0WAIT_REDUCE_GRAD,0WAIT_SEND_F1\n"
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n";

std::string waiting(std::string_view from, std::string_view to) {
    return with(from, to, kWaiting);
}

TEST(LoweredCsv, IsCheckedAndReducedToItsPasses) {
    const ScheduleFile file = from_csv(kLoweredOneFOneB);
    EXPECT_THAT(csv_lists_of(file.schedule), ElementsAre("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"));
    EXPECT_THAT(file.notes, ElementsAre("a.csv: skipped 8 communication and sharding cells after "
                                        "checking them; lowering infers them from the passes"));
}

TEST(LoweredCsv, MayShareACellBetweenTwoTransfersInTheOldDialect) {
    const ScheduleFile file = from_csv(
        "0F0,0SEND_F0,0F1,0SEND_F1_0RECV_B0,0BW0,0RECV_B1,0BW1\n"
        "1RECV_F0,1F0,1BW0,1SEND_B0_1RECV_F1,1F1,1BW1,1SEND_B1\n",
        CsvDialect::automatic);
    EXPECT_THAT(csv_lists_of(file.schedule), ElementsAre("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"));
}

struct Fault {
    std::string name, text, error;
};

void PrintTo(const Fault& fault, std::ostream* out) {
    *out << fault.text;
}

class LoweredFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(LoweredFaults, AreRefused) {
    EXPECT_THAT(refused_csv(GetParam().text), HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    , LoweredFaults,
    ::testing::Values(
        Fault{"SendBeforeItsPass", with("0F0,0SEND_F0", "0SEND_F0,0F0"),
              "row 1, cell 1, \"0SEND_F0\": comes before the pass that computes what it sends"},
        Fault{"ReceiveAfterItsPass", with("1RECV_F0,1F0", "1F0,1RECV_F0"),
              "row 2, cell 2, \"1RECV_F0\": comes after the pass that needs it"},
        Fault{"MissingReceive", with(",0RECV_B1", ""), "row 1: 0RECV_B1 is missing"},
        Fault{"MissingSend", with(",1SEND_B1", ""), "row 2: 1SEND_B1 is missing"},
        Fault{"Twice", with("0SEND_F0", "0SEND_F0,0SEND_F0"),
              "row 1, cell 3, \"0SEND_F0\": appears twice"},
        Fault{"OfAnotherRank", with("0SEND_F1", "1SEND_F1"), "stage 1 is on rank 1"},
        Fault{"OfNoStage", with("0SEND_F1", "2SEND_F1"),
              "stage 2 does not exist; the last stage is 1"},
        Fault{"OfNoMicrobatch", with("0SEND_F1", "0SEND_F2"), "microbatch 2 does not exist"},
        Fault{"OffTheEnd", with("1B1,", "1B1,1SEND_F1,"), "there is no stage at the other end"},
        Fault{"WithoutMicrobatch", with("0SEND_F1", "0SEND_F"), "has no microbatch"},
        Fault{"OnOneRank", "0F0,0SEND_F0,1F0,1B0,0B0\n", "is on the same rank, so no message"},
        Fault{"OutOfOrder", with("1RECV_F0,1F0,1RECV_F1", "1RECV_F1,1RECV_F0,1F0"),
              "row 2, cell 1, \"1RECV_F1\": rank 0 sends 0SEND_F0 at this point"},
        Fault{"PairOfTransfers", "(0SEND_F0;0B0)OVERLAP_F_B\n", "\"SEND_F\" is not a pass"},
        Fault{"ReshardFirst", "0RESHARD,0F0,0B0\n", "the stage was not unsharded"},
        Fault{"UnshardTwice", "0UNSHARD,0UNSHARD,0F0,0B0\n", "the stage is already unsharded"},
        Fault{"UnshardLate", "0F0,0UNSHARD,0B0\n", "0F0 runs while the weights of its stage are"},
        Fault{"UnshardOfMicrobatch", "0UNSHARD0,0F0,0B0\n", "UNSHARD must not have a microbatch"},
        Fault{"ReduceEarly", "0F0,0F1,0B0,0REDUCE_GRAD,0B1\n",
              "1 later passes add to the stage's gradients"},
        Fault{"ReduceTwice", "0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n", "appears twice"},
        Fault{"SendAfterItsAnswer",
              with("0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1",
                   "0F1,0RECV_B0,0B0,0RECV_B1,0B1,0SEND_F1"),
              "row 1: 0B1 waits for 1SEND_B1, which rank 1 does not reach: a deadlock"},
        Fault{"WaitBeforeItsSend", waiting("0SEND_F0,0F1", "0WAIT_SEND_F0,0SEND_F0,0F1"),
              "row 1, cell 2, \"0WAIT_SEND_F0\": comes before the SEND that it waits for"},
        Fault{"WaitTwice", waiting("0WAIT_SEND_F1", "0WAIT_SEND_F0"),
              "row 1, cell 12, \"0WAIT_SEND_F0\": appears twice"},
        Fault{"WaitOfNothing", waiting("1WAIT_SEND_B1", "1WAIT_SEND_F1"),
              "row 2, cell 10, \"1WAIT_SEND_F1\": there is no stage at the other end"},
        Fault{"WaitMissing", waiting(",1WAIT_SEND_B0", ""),
              "row 2, cell 5, \"1SEND_B0\": 1WAIT_SEND_B0 is missing; a file with WAIT_SEND "
              "cells needs one for every SEND"},
        // Rank 1 posts the receive of 0F1 behind its B0, which rank 0 waits for behind this.
        Fault{"WaitForEver",
              "0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1\n"
              "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B1\n",
              "row 1, cell 5, \"0WAIT_SEND_F1\": waits for 1RECV_F1, which rank 1 does not reach: "
              "a deadlock"},
        Fault{"ReduceWaitFirst", "0F0,0B0,0WAIT_REDUCE_GRAD,0REDUCE_GRAD\n",
              "row 1, cell 3, \"0WAIT_REDUCE_GRAD\": comes where no REDUCE_GRAD of the stage is "
              "pending"},
        Fault{"ReduceWaitOfAnother",
              "0F0,1F0,1B0,0B0,1REDUCE_GRAD,0WAIT_REDUCE_GRAD,0REDUCE_GRAD,1WAIT_REDUCE_GRAD\n",
              "row 1, cell 6, \"0WAIT_REDUCE_GRAD\": comes where no REDUCE_GRAD"},
        Fault{"ReduceWaitMissing", "0F0,1F0,1B0,0B0,1REDUCE_GRAD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n",
              "row 1, cell 5, \"1REDUCE_GRAD\": has no WAIT_REDUCE_GRAD before the next reduction"},
        Fault{"ReduceWaitOfMicrobatch", "0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD0\n",
              "WAIT_REDUCE_GRAD must not have a microbatch"}),
    [](const auto& info) { return info.param.name; });

TEST(LoweredCsv, MayWaitForItsSendsAndReductions) {
    for (const CsvDialect dialect :
         {CsvDialect::current, CsvDialect::automatic, CsvDialect::lowered}) {
        EXPECT_THAT(csv_lists_of(from_csv(kWaiting, dialect).schedule),
                    ElementsAre("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"));
    }
    EXPECT_THAT(from_csv(kWaiting, CsvDialect::automatic).notes.front(),
                HasSubstr("new dialect because of row 1, cell 7, \"0WAIT_SEND_F0\""));
}

// Written by PyTorch 2.15.0 with the defaults of its lowering
// (benchmarks/compare_torch_schedules.py --write): p = 2, two stages per rank but for gpipe.
struct TorchFile {
    std::string family;
    int microbatches;
};

TEST(LoweredCsv, OfPyTorchAreReadAndWrittenCellByCell) {
    const TorchFile files[] = {{"gpipe", 2},          {"looped-bfs", 2}, {"interleaved", 2},
                               {"interleaved-zb", 2}, {"zb-v", 4},       {"dualpipe-v", 4}};
    for (const TorchFile& torch : files) {
        SCOPED_TRACE(torch.family);
        std::string name = torch.family;
        std::ranges::replace(name, '-', '_');
        const std::string path = VOCABPIPE_TORCH_SCHEDULES "/torch_" + name + ".csv";
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        const Schedule schedule = read_schedule(path).schedule;
        EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::lowered), text.str());
        const Schedule ours = make_schedule(
            torch.family, {.ranks = 2, .microbatches = torch.microbatches, .vocab_size = 2});
        EXPECT_EQ(print_schedule_csv(ours, CsvDialect::lowered), text.str());
    }
}

// schedule_oracles.json: torch_unshard_reshard and torch_reduce_grad.
TEST(LoweredCsv, MayShardWeightsBetweenPasses) {
    for (const char* text :
         {"0UNSHARD,1UNSHARD,0F0,0F1,1F0,1F1,1B0,1B1,1RESHARD,0B0,0B1,0RESHARD\n",
          "0F0,0F1,1F0,1F1,1B0,1B1,1REDUCE_GRAD,0B0,0B1,0REDUCE_GRAD\n"}) {
        EXPECT_THAT(csv_lists_of(from_csv(text).schedule),
                    ElementsAre("0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1"));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
