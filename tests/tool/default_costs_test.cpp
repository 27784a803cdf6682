// SPDX-License-Identifier: Apache-2.0
// Steps without --costs are of one model, whatever the number of ranks, and say so.
#include "tests/tool/run_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using ::testing::StartsWith;
using testing::TempFolder;
using testing::unwrapped;
using Json = nlohmann::json;

Outcome of_program(const TempFolder& in, const std::string& arguments) {
    return testing::run_shell("cd '" + (in / "") + "' && '" VOCABPIPE_PROGRAM "' " + arguments);
}

Json simulated_step(const std::string& arguments) {
    const TempFolder folder;
    const Outcome outcome = of_program(folder, "simulate " + arguments + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return Json::parse(outcome.output);
}

double busy_of(const Json& step, size_t rank) {
    return step.at("by_rank").at(rank).at("busy").get<double>();
}

/// S, and T, of all rows, where F of a layer is 12: 3 h V and 24 h^2 + 2 s h FLOPs per token.
constexpr double output_layer(double hidden, double seq_length, double rows) {
    return 12 * 3 * hidden * rows / (24 * hidden * hidden + 2 * seq_length * hidden);
}

TEST(DefaultCosts, AreOfOneModelForAnyNumberOfRanks) {
    const double whole = output_layer(12288, 2048, 50304);
    ASSERT_NEAR(whole, 6.0566, 1e-4);
    for (const int ranks : {2, 4, 5, 8, 32}) {
        const Json step = simulated_step("1f1b --microbatches 8 --pp " + std::to_string(ranks));
        const double layers = 96.0 * 36 / ranks;
        // E and G of the first rank are a quarter of an even share each. A twelfth is a tick.
        const auto last = static_cast<size_t>(ranks) - 1;
        EXPECT_NEAR(busy_of(step, 0) / 8, layers + whole / ranks / 2, 4.0 / 12) << ranks;
        EXPECT_NEAR(busy_of(step, last) / 8, layers + 2 * whole, 4.0 / 12) << ranks;
        // 96 layers of 32 h bytes per token, for the microbatches in flight on the first rank.
        const Json& at_peak = step.at("by_rank").at(0).at("bytes_at_peak");
        EXPECT_NEAR(at_peak.at("activations").get<double>(),
                    std::min(ranks, 8) * (96.0 / ranks) * 32 * 12288 * 2048,
                    ranks * 4.0 * 12288 * 2048)
            << ranks;
    }
}

TEST(DefaultCosts, FollowTheSizesThatAreGiven) {
    const Json step = simulated_step(
        "1f1b --pp 4 --microbatches 8 --num-layers 32 --hidden-size 4096 --seq-length 4096 "
        "--vocab-size 128256");
    const double whole = output_layer(4096, 4096, 128256);
    EXPECT_NEAR(busy_of(step, 3) / 8, 8 * 36 + 2 * whole, 4.0 / 12);
    EXPECT_EQ(step.at("costs"),
              "F 96, B 192, V 10.84 (32 layers of F 12, hidden size 4096, 128256 vocabulary rows)");
    EXPECT_NEAR(whole / 4, 10.84, 0.01);
}

TEST(DefaultCosts, AreNearTheTextbookWhereTheVocabularyIsSmall) {
    const double textbook = 31.0 / (256 + 31);
    const auto bubble = [](const std::string& more) {
        return simulated_step("1f1b --pp 32 --microbatches 256" + more).at("bubble").get<double>();
    };
    EXPECT_NEAR(bubble(" --vocab-size 320"), textbook, 0.002);
    EXPECT_NEAR(bubble(" --vocab-mode one_barrier"), textbook, 0.005);
    EXPECT_NEAR(bubble(" --vocab-mode redistributed"), 0.187, 0.02);  // cannot halve a layer
    // 3 layers on every rank, and the output layer is one third of a layer on the last.
    const double slowest = 108 + 2 * output_layer(12288, 2048, 50304);
    const double busy = 256 * (108 + 2 * output_layer(12288, 2048, 50304) / 32);
    EXPECT_NEAR(bubble(""), 1 - busy / (256 * slowest + 31 * 108), 0.002);
}

TEST(DefaultCosts, AreNamedWithTheirModelAndTheVocabularyMode) {
    const TempFolder folder;
    const std::string costs =
        "F 288, B 576, V 1.51 (96 layers of F 12, hidden size 12288, 50304 vocabulary rows)";
    for (const char* command : {"simulate", "explain", "schedule show"}) {
        const Outcome plain =
            of_program(folder, std::string(command) + " 1f1b --pp 4 --microbatches 8");
        EXPECT_THAT(unwrapped(plain.output),
                    AllOf(StartsWith("1f1b none, 4 ranks, 8 microbatches "),
                          HasSubstr("in the unit of the costs of a rank: " + costs + "; V: S"),
                          HasSubstr("vocabulary mode none, the schedule as published, because no "
                                    "--vocab-mode is given (train_gpt: one_barrier)")))
            << command;
        EXPECT_THAT(of_program(folder, std::string(command) +
                                           " 1f1b --pp 4 --microbatches 8 --vocab-mode none")
                        .output,
                    Not(HasSubstr("as published")))
            << command;
    }
    const Outcome drawn =
        of_program(folder, "timeline 1f1b gpipe 1f1b,costs=3,6 --pp 4 --microbatches 8 --html a");
    EXPECT_THAT(unwrapped(drawn.output),
                AllOf(HasSubstr("unit of the costs: " + costs + " "), HasSubstr("F 3, B 6, V 1")));
    EXPECT_EQ(drawn.output.find("F 288"), drawn.output.rfind("F 288")) << "said once";
    EXPECT_THAT(testing::read_file(folder / "a"), HasSubstr("\"costs\":\"" + costs + "\""));
}

TEST(SimulateCommand, SaysWhatAWholeOutputLayerDoesToTheBubble) {
    const TempFolder folder;
    const auto printed = [&](const std::string& more) {
        return unwrapped(of_program(folder, "simulate 1f1b --microbatches 8 --pp 4" + more).output);
    };
    // Ranks 0 to 3 are busy for 8 x 62, 60, 60 and 92.
    EXPECT_THAT(printed(" --costs 20,40,4"),
                HasSubstr("because rank 3 has the whole output layer and is busy 34.31 % longer "
                          "than the mean rank, which alone makes a bubble of 25.54 %; "
                          "--vocab-mode one_barrier gives every rank a share"));
    EXPECT_THAT(printed(" --costs 20,40,0"), Not(HasSubstr("because rank")));
    EXPECT_THAT(printed(" --costs 20,40,20 --vocab-mode one_barrier"),
                Not(HasSubstr("because rank")));
    EXPECT_THAT(printed(" --costs 200,400,1"), Not(HasSubstr("because rank"))) << "less than 1 %";
}

}  // namespace
}  // namespace vocabpipe
