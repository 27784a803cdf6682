// SPDX-License-Identifier: Apache-2.0
// f_S, f_R and f_C, and the proof over them.
#include "vocabpipe/tile_functions.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/prove_tiles.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TileFunctions, OfAGridCoverEveryElementOnceAndLieOnOneMember) {
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
        const TileGrid grid{.rows = static_cast<int64_t>(random() % 40),
                            .columns = static_cast<int64_t>(random() % 30),
                            .tile_rows = static_cast<int64_t>(1 + random() % 9),
                            .tile_columns = static_cast<int64_t>(1 + random() % 9),
                            .members = static_cast<int>(1 + random() % 5),
                            .signals_per_member = static_cast<int>(random() % 4)};
        const TileFunctions functions = functions_of(grid);
        std::vector<int> covered(static_cast<size_t>(grid.rows * grid.columns));
        const int64_t each = (grid.rows + grid.members - 1) / grid.members;
        std::map<int, std::set<int>> owners;  // of a signal
        for (int64_t tile = 0; tile < functions.tiles; ++tile) {
            const TileArea area = functions.shape(tile);
            owners[functions.signal(tile)].insert(functions.member(tile));
            for (int64_t row = area.rows.first; row < area.rows.end; ++row) {
                EXPECT_EQ(row / each, functions.member(tile));
                for (int64_t column = area.columns.first; column < area.columns.end; ++column) {
                    ++covered[static_cast<size_t>(row * grid.columns + column)];
                }
            }
        }
        EXPECT_EQ(std::ranges::count(covered, 1), std::ssize(covered));
        for (const auto& [signal, members] : owners) EXPECT_EQ(members.size(), 1u);
        if (grid.signals_per_member == 0) {
            EXPECT_EQ(std::ssize(owners), functions.tiles);
        } else if (!owners.empty()) {
            EXPECT_LT(owners.rbegin()->first, grid.signals_per_member * grid.members);
        }
    }
    EXPECT_THROW((void)functions_of(TileGrid{.rows = 3, .columns = 3}), UsageError);
}

TEST(TileFunctions, OfTablesAreTheTables) {
    const TileFunctions functions =
        functions_of(TileTables{.shape = {{{0, 3}, {0, 4}}, {{3, 9}, {0, 4}}, {{3, 9}, {4, 5}}},
                                .member = {2, 0, 1},
                                .signal = {5, 5, 1}});
    EXPECT_EQ(functions.tiles, 3);
    EXPECT_EQ(functions.member(0), 2);
    EXPECT_EQ(functions.signal(1), 5);
    EXPECT_THAT(tiles_meeting(functions, {{2, 4}, {0, 4}}), ElementsAre(0, 1));
    EXPECT_THAT(tiles_meeting(functions, {{3, 4}, {3, 5}}), ElementsAre(1, 2));
    EXPECT_THAT(tiles_meeting(functions, {{9, 10}, {0, 5}}), ElementsAre());
    EXPECT_THROW((void)functions_of(TileTables{.shape = {{}}, .member = {}, .signal = {0}}),
                 UsageError);
}

// --- proof ---------------------------------------------------------------------------------------

constexpr TileAction kMake = TileAction::make;
constexpr TileAction kWait = TileAction::wait;
using Steps = std::vector<std::vector<TileStep>>;

/// Two operations of four tiles; tile t is of rank t mod 2. In the second, two tiles share a
/// signal.
std::vector<ProvedOperation> two_operations() {
    const auto functions = [](int share) {
        return TileFunctions{
            .tiles = 4,
            .shape = [](int64_t) { return TileArea{}; },
            .member = [](int64_t tile) { return static_cast<int>(tile % 2); },
            .signal = [share](int64_t tile) { return static_cast<int>(tile) / share; }};
    };
    return {{"gather", functions(1)}, {"reduce", functions(2)}};
}

std::string error_of(const Steps& steps) {
    try {
        prove_tiles(two_operations(), steps);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "proved";
}

TEST(ProveTiles, AcceptsWhatEnds) {
    EXPECT_EQ(error_of({{}, {}}), "proved");
    EXPECT_EQ(error_of({{{kMake, 0, 0, 1}, {kWait, 0, 1}}, {{kMake, 0, 1, 0}, {kWait, 0, 0}}}),
              "proved");
    EXPECT_EQ(error_of({{{kWait, 1, 1}}, {{kMake, 1, 0, 0}, {kMake, 1, 1, 0}}}), "proved");
    // What f_R names: tile 1 is made at rank 1, by rank 0.
    EXPECT_EQ(error_of({{{kMake, 0, 1}}, {{kWait, 0, 1}}}), "proved");
}

TEST(ProveTiles, NamesATileThatNobodyMakes) {
    EXPECT_EQ(error_of({{{kMake, 0, 0, 1}}, {{kWait, 0, 0}, {kWait, 0, 3}}}),
              "rank 1: gather: waits for tile 3, which no rank makes for it");
    EXPECT_EQ(error_of({{{kWait, 0, 2}}, {{kMake, 0, 2, 1}}}),
              "rank 0: gather: waits for tile 2, which no rank makes for it");
    EXPECT_EQ(error_of({{{kWait, 1, 2}}, {{kMake, 1, 2, 0}}}),
              "rank 0: reduce: waits for tile 2 with the signal of tile 3, which no rank makes for "
              "it");
}

TEST(ProveTiles, NamesATileThatIsMadeTwice) {
    EXPECT_EQ(error_of({{{kWait, 0, 2}, {kMake, 0, 2, 0}}, {{kMake, 0, 2, 0}}}),
              "rank 0: gather: waits for tile 2, which is made for it twice: by rank 0 and by rank "
              "1");
}

TEST(ProveTiles, NamesACircleOverRanksAndOperations) {
    EXPECT_EQ(error_of({{{kWait, 0, 1}, {kMake, 1, 0, 1}, {kMake, 1, 1, 1}},
                        {{kWait, 1, 0}, {kMake, 0, 1, 0}}}),
              "tiles wait in a circle: rank 0 waits in gather for tile 1 of rank 1, which before "
              "that waits in reduce for tile 0 of rank 0");
    EXPECT_THAT(error_of({{{kWait, 0, 0}, {kMake, 0, 0, 0}}}),
                HasSubstr("rank 0 waits in gather for tile 0 of rank 0"));
}

TEST(ProveTiles, NamesWhatDoesNotExist) {
    EXPECT_EQ(error_of({{{kWait, 2, 0}}}), "rank 0: operation 2 of 2 does not exist");
    EXPECT_EQ(error_of({{{kWait, 0, 4}}}), "rank 0: gather: tile 4 of 4 does not exist");
    EXPECT_EQ(error_of({{{kMake, 0, 0, 1}}}),
              "rank 0: gather: makes tile 0 for rank 1 of 1, which does not exist");
}

/// Whether the steps end, by trying: a rank goes on while all signals it waits for are raised.
bool ends(const std::vector<ProvedOperation>& operations, const Steps& steps) {
    std::vector<size_t> done(steps.size());
    std::set<std::vector<int64_t>> made;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t rank = 0; rank < steps.size(); ++rank) {
            while (done[rank] < steps[rank].size()) {
                const TileStep& step = steps[rank][done[rank]];
                const TileFunctions& f = operations[static_cast<size_t>(step.operation)].functions;
                bool ready = true;
                for (int64_t tile = 0; tile < f.tiles; ++tile) {
                    if (step.action == kWait && f.signal(tile) == f.signal(step.tile) &&
                        !made.contains({step.operation, tile, static_cast<int64_t>(rank)})) {
                        ready = false;
                    }
                }
                if (!ready) break;
                if (step.action == kMake) made.insert({step.operation, step.tile, step.member});
                ++done[rank];
                moved = true;
            }
        }
    }
    for (size_t rank = 0; rank < steps.size(); ++rank) {
        if (done[rank] < steps[rank].size()) return false;
    }
    return true;
}

TEST(ProveTiles, AgreesWithTryingOnRandomPrograms) {
    std::mt19937 random(7);
    int proved = 0;
    const int cases = 3000;
    for (int i = 0; i < cases; ++i) {
        Steps steps(2 + random() % 2);
        for (int operation = 0; operation < 2; ++operation) {
            for (int64_t tile = 0; tile < 4; ++tile) {
                for (int at = 0; at < std::ssize(steps); ++at) {
                    if (random() % 3 == 0) continue;
                    auto& maker = steps[random() % steps.size()];
                    maker.push_back({kMake, operation, tile, at});
                }
            }
        }
        for (int left = static_cast<int>(random() % 4); left > 0; --left) {
            auto& rank = steps[random() % steps.size()];
            rank.push_back(
                {kWait, static_cast<int>(random() % 2), static_cast<int64_t>(random() % 4)});
        }
        for (auto& rank : steps) std::shuffle(rank.begin(), rank.end(), random);
        const bool is_proved = error_of(steps) == "proved";
        EXPECT_EQ(is_proved, ends(two_operations(), steps));
        if (is_proved) ++proved;
    }
    EXPECT_GT(proved, cases / 10);
    EXPECT_LT(proved, cases * 9 / 10);
}

}  // namespace
}  // namespace vocabpipe
