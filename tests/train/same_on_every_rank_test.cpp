// SPDX-License-Identifier: Apache-2.0
#include "src/step/same_on_every_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace vocabpipe {
namespace {

using Lines = std::vector<std::string>;

/// What three ranks are told, of which the last one has `other`; empty if they may go on.
std::string refusal(const Lines& lines, const Lines& other) {
    std::array<std::string, 3> messages;
    World::threads(3, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        const auto rank = static_cast<size_t>(communicator.rank());
        try {
            check_same_on_every_rank(communicator, rank == 2 ? other : lines, ExitCode::input_file,
                                     "give the same");
        } catch (const AgreedError& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::input_file);
            messages[rank] = error.what();
        }
    });
    EXPECT_EQ(messages[0], messages[1]);
    EXPECT_EQ(messages[0], messages[2]);
    return messages[0];
}

TEST(SameOnEveryRank, LetsRanksGoOnWithTheSameLines) {
    EXPECT_EQ(refusal({"--lr 1", "--seed 2"}, {"--lr 1", "--seed 2"}), "");
    EXPECT_EQ(refusal({}, {}), "");
}

TEST(SameOnEveryRank, NamesTheFirstLineThatDiffersOnAllRanks) {
    EXPECT_EQ(refusal({"--lr 1", "--seed 2", "x"}, {"--lr 1", "--seed 3", "y"}),
              "--seed 2 on rank 0 but --seed 3 on rank 2: give the same");
    EXPECT_EQ(refusal({"a", "b"}, {"a"}), "b on rank 0, but not on rank 2: give the same");
    EXPECT_EQ(refusal({"a"}, {"a", "b"}), "b on rank 2, but not on rank 0: give the same");
}

}  // namespace
}  // namespace vocabpipe
