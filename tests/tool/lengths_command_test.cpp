// SPDX-License-Identifier: Apache-2.0
// --lengths of vocabpipe simulate, show and timeline, run as programs.
#include "tests/schedule/small_profile.hpp"
#include "tests/tool/run_program.hpp"
#include "vocabpipe/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::TempFolder;
using Json = nlohmann::json;

Outcome lengths_command(const TempFolder& in, const std::string& arguments) {
    return testing::run_shell("cd '" + (in / "") + "' && '" VOCABPIPE_PROGRAM "' " + arguments);
}

Json simulated_lengths(const std::string& arguments) {
    const TempFolder folder;
    const Outcome outcome = lengths_command(folder, "simulate " + arguments + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return Json::parse(outcome.output);
}

// Without attention a pass is as long as its tokens; 2^20 columns leave next to nothing of it.
TEST(LengthsOfSimulate, MakePassesAsLongAsTheirTokensAndTheirAttention) {
    const auto busy = [](const std::string& flags) {
        return simulated_lengths("1f1b --pp 1 --costs 1200,2400,0 " + flags)["by_rank"][0]["busy"]
            .get<double>();
    };
    const std::string wide = " --hidden-size 1048576 --vocab-size 8";
    EXPECT_EQ(busy("--microbatches 3 --seq-length 512" + wide), 3 * 3600);
    EXPECT_NEAR(busy("--lengths 512:1,256:2" + wide), 2 * 3600, 2);
    // 24 h^2 + 2 s h FLOPs per token and layer: (24 + 2) of (24 + 4) per token for half as many.
    EXPECT_NEAR(busy("--lengths 128:1,64:1 --hidden-size 64 --vocab-size 8"),
                3600 * (1 + 0.5 * 26 / 28), 2);
}

TEST(LengthsOfSimulate, ChangeNothingWhereAllAreOne) {
    const std::string step = "zb-h1 --pp 4 --vocab-mode one_barrier";
    Json one = simulated_lengths(step + " --lengths 4096:8");
    EXPECT_EQ(one["lengths"], "4096 x 8");
    one.erase("lengths");
    EXPECT_EQ(one, simulated_lengths(step + " --microbatches 8 --seq-length 4096"));
}

TEST(LengthsOfSimulate, AreOrderedTheSameHoweverTheyAreGiven) {
    const TempFolder folder;
    const auto shown = [&](const std::string& lengths) {
        return lengths_command(folder, "schedule show 1f1b --pp 4 --lengths " + lengths).output;
    };
    EXPECT_EQ(shown("8192:4,2048:4"), shown("2048:4,8192:4"));
    EXPECT_THAT(shown("8192:4,2048:4"),
                HasSubstr("sequence lengths of the microbatches in order: "));
    EXPECT_LT(simulated_lengths("1f1b --pp 4 --lengths 8192:4,2048:4")["step"],
              simulated_lengths("1f1b --pp 4 --lengths 8192:8")["step"]);
}

TEST(LengthsOfSimulate, ReachTheSearchAndThePage) {
    const std::string step = "interleaved --pp 4 --lengths 8192:4,1024:4";
    EXPECT_LE(simulated_lengths(step + " --search-moves 20000")["makespan"],
              simulated_lengths(step)["makespan"]);
    const TempFolder folder;
    const Outcome page = lengths_command(folder, "timeline " + step + " --html a.html");
    EXPECT_EQ(page.exit_code, 0) << page.error;
}

TEST(LengthsOfSimulate, AreThoseOfAProfileAtMost) {
    const TempFolder folder;
    Profile profile = testing::small_profile();
    profile.model.seq_length = 64;
    write_profile(folder / "profile.json", profile);
    const std::string step =
        "simulate 1f1b --vocab-mode one_barrier --costs profile.json --lengths ";
    const Outcome shorter = lengths_command(folder, step + "32:4 --json");
    EXPECT_EQ(shorter.exit_code, 0) << shorter.error;
    const Outcome longest = lengths_command(folder, step + "64:4 --json");
    EXPECT_LT(Json::parse(shorter.output)["step"], Json::parse(longest.output)["step"]);
    const Outcome longer = lengths_command(folder, step + "65:4");
    EXPECT_EQ(longer.exit_code, 2);
    EXPECT_THAT(longer.error, HasSubstr("has sequences of 64 tokens"));
}

TEST(LengthsOfSimulate, AreRefusedInOneLineThatSaysWhatIsWrong) {
    const TempFolder folder;
    const auto refused = [&](const std::string& lengths, const std::string& why) {
        const Outcome outcome =
            lengths_command(folder, "simulate 1f1b --pp 2 --lengths " + lengths);
        EXPECT_EQ(outcome.exit_code, 2) << lengths;
        EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << lengths;
        EXPECT_THAT(outcome.error, HasSubstr(why)) << lengths;
    };
    refused("4096", "--lengths 4096: \"4096\" has no number of microbatches");
    refused("4096:1,", "\"\" has no number of microbatches; use LENGTH:MICROBATCHES pairs");
    refused("4096:0", "\"0\" is not an integer from 1 to 2^30");
    refused("4k:1", "\"4k\" is not an integer");
    refused("4:99999999999999999999", "is not an integer");
    refused("8:1,8:2", "has length 8 twice");
    refused("1:1073741824,2:1", "more than 2^30 microbatches");
    refused("8:1 --seq-length 8", "--seq-length");
    refused("8:1 --microbatches 1", "--microbatches");
}

}  // namespace
}  // namespace vocabpipe
