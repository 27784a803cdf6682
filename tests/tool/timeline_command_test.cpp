// SPDX-License-Identifier: Apache-2.0
// Titles and costs of timelines, and layers of steps that take their times from a profile.
#include "tests/schedule/small_profile.hpp"
#include "tests/tool/run_program.hpp"
#include "vocabpipe/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

testing::Outcome program_in(const testing::TempFolder& in, const std::string& arguments) {
    return testing::run_shell("cd '" + (in / "") + "' && '" VOCABPIPE_PROGRAM "' " + arguments);
}

TEST(TimelineTitle, NamesTheFirstRunAndCountsTheOthers) {
    const testing::TempFolder folder;
    const auto title_of = [&](const std::string& runs) {
        const testing::Outcome outcome =
            program_in(folder, "timeline " + runs + " --pp 2 --microbatches 2 --html t.html");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        const std::string page = testing::read_file(folder / "t.html");
        const size_t begin = page.find("<title>") + 7;
        return page.substr(begin, page.find("</title>") - begin);
    };
    const std::string first = "1f1b none, 2 ranks, 2 microbatches";
    EXPECT_EQ(title_of("1f1b"), first);
    EXPECT_EQ(title_of("1f1b gpipe"), first + " and 1 more");
    EXPECT_EQ(title_of("1f1b gpipe zb-h1"), first + " and 2 more");
}

// A third of 31 and a third of 100.
TEST(TimelineCosts, HaveTwoDecimalsWhereTheyAreNotWhole) {
    const testing::TempFolder folder;
    const auto page_of = [&](const std::string& costs) {
        const testing::Outcome outcome = program_in(
            folder, "timeline 1f1b --pp 2 --microbatches 2 --html t.html --costs " + costs);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        return testing::read_file(folder / "t.html");
    };
    EXPECT_THAT(page_of("31,62"), HasSubstr(R"("costs":"F 31, B 62, V 10.33")"));
    EXPECT_THAT(page_of("100,200"), HasSubstr(R"("costs":"F 100, B 200, V 33.33")"));
    EXPECT_THAT(page_of("30,62"), HasSubstr(R"("costs":"F 30, B 62, V 10")"));
}

TEST(SimulatedReceives, AreTwoPassesAheadWhereAskedFor) {
    const testing::TempFolder folder;
    const auto printed = [&](const std::string& ahead) {
        return program_in(folder, "simulate gpipe --pp 2 --microbatches 4 --receive-ahead " + ahead)
            .output;
    };
    EXPECT_THAT(printed("2"), HasSubstr("\nreceives      2 passes ahead\n"));
    EXPECT_THAT(printed("1"), AllOf(HasSubstr("\nbubble "), Not(HasSubstr("\nreceives "))));
}

// Eight layers of 0.75 ms, and an output layer of 2 ms, as much as 2 2/3 of them: 5 layers beside
// 3 and the output layer are 3.75 ms beside 4.25 ms; 6 beside 2, 4.5 ms beside 3.5 ms. E and G of
// all rows take 1 ms.
TEST(SimulatedProfile, MovesLayersAwayFromTheOutputLayerOnlyIfAskedTo) {
    const testing::TempFolder folder;
    Profile profile = testing::small_profile();
    profile.model.layers = 8;
    profile.model.layers_per_stage = {4, 4};
    write_profile(folder / "profile.json", profile);
    const auto busy = [&](const std::string& mode, int rank) {
        const testing::Outcome outcome =
            program_in(folder, "simulate 1f1b,vocab-mode=" + mode +
                                   " --microbatches 6 --costs profile.json --json");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        return nlohmann::json::parse(outcome.output)
            .at("by_rank")
            .at(static_cast<size_t>(rank))
            .at("busy")
            .get<double>();
    };
    EXPECT_NEAR(busy("redistributed", 0), 6 * (5 * 0.75e6 + 1e6), 1e5);
    EXPECT_NEAR(busy("redistributed", 1), 6 * (3 * 0.75e6 + 2e6), 1e5);
    EXPECT_NEAR(busy("none", 0), 6 * (4 * 0.75e6 + 1e6), 1e5);
    EXPECT_NEAR(busy("none", 1), 6 * (4 * 0.75e6 + 2e6), 1e5);
}

TEST(SimulatedSchedule, IsRefusedWithAFlagOfItsOwnThatThereIsNot) {
    const testing::TempFolder folder;
    for (const char* flag : {"folly", "folly,costs=1,2", "folly=1"}) {
        const testing::Outcome outcome =
            program_in(folder, "simulate 1f1b," + std::string(flag) + " --pp 2 --microbatches 2");
        EXPECT_EQ(outcome.exit_code, 2) << flag;
        EXPECT_THAT(outcome.error,
                    AllOf(HasSubstr("--folly"), HasSubstr("use NAME,flag=value,...")));
    }
}

}  // namespace
}  // namespace vocabpipe
