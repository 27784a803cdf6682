// SPDX-License-Identifier: Apache-2.0
#include "src/step/rank_placement.hpp"

#include "src/step/ranks_beside.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

RankHome home(const std::string& host, const std::vector<size_t>& cores, int quota = 0,
              size_t group = 0) {
    RankHome home{.quota = quota, .group_of_quota = group};
    host.copy(home.host.data(), home.host.size() - 1);
    for (const size_t core : cores) CPU_SET(core, &home.cores);
    return home;
}

/// The placement of every rank: "host cores/sharing rank of ranks on host".
std::vector<std::string> placed(const std::vector<RankHome>& homes) {
    std::vector<std::string> all;
    for (const RankPlacement& p : placements_of(homes)) {
        EXPECT_EQ(p.ranks, std::ssize(homes));
        all.push_back(p.host + " " + std::to_string(p.cores) + "/" +
                      std::to_string(p.ranks_sharing) + " " + std::to_string(p.local_rank) +
                      " of " + std::to_string(p.ranks_on_host));
    }
    return all;
}

using Places = std::vector<std::string>;

TEST(RankPlacement, CountsRanksOfTheSameHostAndOfTheSameCores) {
    EXPECT_EQ(
        placed({home("a", {0, 1, 2}), home("b", {0, 1, 2}), home("a", {0, 1, 2}), home("a", {3}),
                home("b", {0, 1})}),
        (Places{"a 3/2 0 of 3", "b 3/1 0 of 2", "a 3/2 1 of 3", "a 1/1 2 of 3", "b 2/1 1 of 2"}));
    EXPECT_EQ(placed({home("a", {})}), Places{"a 1/1 0 of 1"}) << "a mask that cannot be read";
}

// A quota counts where it leaves a rank less than its share of the cores.
TEST(RankPlacement, SharesAQuotaAmongTheRanksOfItsGroup) {
    const std::vector<size_t> eight{0, 1, 2, 3, 4, 5, 6, 7};
    EXPECT_EQ(placed({home("a", eight, 3, 1)}), Places{"a 3/1 0 of 1"});
    EXPECT_EQ(placed({home("a", eight, 8, 1)}), Places{"a 8/1 0 of 1"});
    EXPECT_EQ(placed({home("a", eight, 9, 1)}), Places{"a 8/1 0 of 1"});
    EXPECT_EQ(placed({home("a", eight, 6, 1), home("a", eight, 6, 1), home("a", eight, 6, 2),
                      home("b", eight, 6, 1)}),
              (Places{"a 8/3 0 of 3", "a 8/3 1 of 3", "a 8/3 2 of 3", "b 6/1 0 of 1"}));
    EXPECT_EQ(placed({home("a", {0, 1}, 3, 1), home("a", {2, 3}, 3, 1)}),
              (Places{"a 3/2 0 of 2", "a 3/2 1 of 2"}));
    EXPECT_EQ(placed({home("a", {0, 1}, 4, 1), home("a", {2, 3}, 4, 1)}),
              (Places{"a 2/1 0 of 2", "a 2/1 1 of 2"}));
    EXPECT_EQ(placed({home("a", {0, 1}, 3, 1), home("a", {2, 3}, 2, 1)}),
              (Places{"a 2/1 0 of 2", "a 2/1 1 of 2"}))
        << "other quotas are of other groups";
}

TEST(RankPlacement, GivesThreadsOfWholeCoresAndOneAtLeast) {
    const auto threads = [](int cores, int ranks) {
        return RankPlacement{.cores = cores, .ranks_sharing = ranks}.threads();
    };
    EXPECT_EQ(threads(8, 2), 4);
    EXPECT_EQ(threads(8, 3), 2);
    EXPECT_EQ(threads(3, 3), 1);
    EXPECT_EQ(threads(2, 3), 1);
}

TEST(RanksBeside, AreOnTheSameHostAndTheSameDevice) {
    std::vector<RankPlacement> placements(7);
    for (size_t rank = 0; rank < placements.size(); ++rank) {
        placements[rank].host = rank < 5 ? "a" : "b";
        if (rank > 0 && rank < 6) placements[rank].device = rank % 2 == 1 ? "gpu 0" : "gpu 1";
    }
    using ::testing::ElementsAre;
    EXPECT_THAT(ranks_beside(placements, 0), ElementsAre(0));
    EXPECT_THAT(ranks_beside(placements, 1), ElementsAre(1, 3));
    EXPECT_THAT(ranks_beside(placements, 2), ElementsAre(2, 4));
    EXPECT_THAT(ranks_beside(placements, 4), ElementsAre(2, 4));
    EXPECT_THAT(ranks_beside(placements, 5), ElementsAre(5));
    EXPECT_THAT(ranks_beside(placements, 6), ElementsAre(6));
}

}  // namespace
}  // namespace vocabpipe::testing
