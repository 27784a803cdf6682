// SPDX-License-Identifier: Apache-2.0
// Which rows are in which piece, against a count row by row.
#include "vocabpipe/tile_map.hpp"

#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace vocabpipe {
namespace {

/// (member, piece) of every row, written down piece by piece; -1, -1: of none.
std::vector<std::pair<int, int>> owners(const TileMap& map) {
    std::vector<std::pair<int, int>> owner(static_cast<size_t>(map.rows()), {-1, -1});
    for (int member = 0; member < map.members(); ++member) {
        for (int piece = 0; piece < map.pieces(member); ++piece) {
            const RowRange rows = map.rows(member, piece);
            EXPECT_LT(rows.first, rows.end) << "an empty piece";
            for (int64_t row = rows.first; row < rows.end; ++row) {
                auto& entry = owner.at(static_cast<size_t>(row));
                EXPECT_EQ(entry, std::pair(-1, -1)) << "row " << row << " twice";
                entry = {member, piece};
            }
        }
    }
    return owner;
}

/// Every row is in one piece, of the member that has it by `begin`, in order; cuts are where the
/// class says.
void expect_whole(const TileMap& map, const std::vector<int64_t>& begin) {
    ASSERT_EQ(map.members() + 1, static_cast<int>(begin.size()));
    ASSERT_EQ(map.rows(), begin.back());
    const auto owner = owners(map);
    for (size_t row = 0; row < owner.size(); ++row) {
        ASSERT_NE(owner[row].first, -1) << "row " << row << " is in no piece";
        const auto member = static_cast<size_t>(owner[row].first);
        ASSERT_LE(begin[member], static_cast<int64_t>(row));
        ASSERT_GT(begin[member + 1], static_cast<int64_t>(row));
        ASSERT_LE(owner[row == 0 ? 0 : row - 1], owner[row]) << "pieces out of order";
    }
    for (int member = 0; member < map.members(); ++member) {
        const int64_t first = begin[static_cast<size_t>(member)];
        const int64_t own = begin[static_cast<size_t>(member) + 1] - first;
        EXPECT_EQ(map.rows(member), (RowRange{first, first + own}));
        for (int piece = 0; piece < map.pieces(member); ++piece) {
            const RowRange rows = map.rows(member, piece);
            EXPECT_EQ((rows.first - first) % 16, 0);
            EXPECT_GE(rows.size(), std::min<int64_t>(32, own));
        }
    }
}

/// `needed` is enough, and one piece less leaves a row out.
void expect_minimal(const TileMap& map, RowRange tile) {
    const auto owner = owners(map);
    for (int member = 0; member < map.members(); ++member) {
        int last = -1;  // piece of the last row of the tile that the member has
        for (int64_t row = tile.first; row < std::min(tile.end, map.rows()); ++row) {
            const auto [whose, piece] = owner[static_cast<size_t>(row)];
            if (whose == member) last = piece;
        }
        EXPECT_EQ(map.needed(member, tile), last + 1)
            << "member " << member << " rows " << tile.first << " to " << tile.end;
    }
}

TEST(TileMap, EvenlyDividedRowsAreEachInOnePieceOfTheRightMember) {
    std::mt19937 random(1);
    const auto upto = [&](int most) {
        return static_cast<int>(random() % static_cast<unsigned>(most + 1));
    };
    for (int round = 0; round < 500; ++round) {
        const int64_t rows = upto(3) == 0 ? upto(40) : upto(3000);
        const int members = 1 + upto(8);
        const int pieces = 1 + upto(11);
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(members) + " members, " +
                     std::to_string(pieces) + " pieces");
        const TileMap map = TileMap::even(rows, members, pieces);
        std::vector<int64_t> begin;
        for (int i = 0; i <= members; ++i) begin.push_back(rows * i / members);
        expect_whole(map, begin);
        for (int member = 0; member < members; ++member) {
            const int64_t own = map.rows(member).size();
            const int64_t most = std::max<int64_t>(own / 32, own > 0 ? 1 : 0);
            EXPECT_EQ(map.pieces(member), std::min<int64_t>(pieces, most));
            int64_t shortest = own, longest = 0;
            for (int piece = 0; piece < map.pieces(member); ++piece) {
                shortest = std::min(shortest, map.rows(member, piece).size());
                longest = std::max(longest, map.rows(member, piece).size());
            }
            EXPECT_LT(longest - shortest, 32) << "pieces are nearly equal";
        }
        for (int tile = 0; tile < 5; ++tile) {
            const int64_t first = upto(static_cast<int>(rows));
            expect_minimal(map, {first, first + upto(300)});
        }
    }
}

TEST(TileMap, CountedRowsAreEachInOnePieceOfTheRightMember) {
    std::mt19937 random(2);
    const auto upto = [&](int most) {
        return static_cast<int>(random() % static_cast<unsigned>(most + 1));
    };
    for (int round = 0; round < 500; ++round) {
        std::vector<int64_t> counts(static_cast<size_t>(1 + upto(8)));
        for (int64_t& count : counts) count = upto(3) == 0 ? 0 : upto(700);
        const int64_t per_piece = 1 + upto(200);
        const TileMap map = TileMap::of_counts(counts, per_piece);
        std::vector<int64_t> begin{0};
        for (const int64_t count : counts) begin.push_back(begin.back() + count);
        expect_whole(map, begin);
        const int64_t step = std::max<int64_t>(32, (per_piece + 15) / 16 * 16);
        for (int member = 0; member < map.members(); ++member) {
            for (int piece = 0; piece < map.pieces(member); ++piece) {
                const int64_t size = map.rows(member, piece).size();
                if (piece + 1 < map.pieces(member)) {
                    EXPECT_EQ(size, step);
                } else {
                    EXPECT_LT(size, step + 32);
                }
            }
        }
        for (int tile = 0; tile < 5; ++tile) {
            const int64_t first = upto(static_cast<int>(map.rows()));
            expect_minimal(map, {first, first + upto(300)});
        }
    }
}

TEST(TileMap, MembersWithoutRowsHaveNoPieces) {
    const TileMap none = TileMap::even(0, 3, 4);
    EXPECT_EQ(none.rows(), 0);
    for (int member = 0; member < 3; ++member) {
        EXPECT_EQ(none.pieces(member), 0);
        EXPECT_EQ(none.needed(member, {0, 10}), 0);
        EXPECT_TRUE(none.ends(member, 8).empty());
    }
    const std::vector<int64_t> counts{0, 40, 0, 40};
    const TileMap some = TileMap::of_counts(counts, 128);
    EXPECT_EQ(some.pieces(0), 0);
    EXPECT_EQ(some.needed(0, {0, 40}), 0);
    EXPECT_EQ(some.needed(1, {39, 41}), 1);
    EXPECT_EQ(some.needed(2, {39, 41}), 0);
    EXPECT_EQ(some.needed(3, {39, 41}), 1);
}

TEST(TileMap, ProductsOfPiecesThatLeaveAreWorthPackingTheWeight) {
    const TileMap small = TileMap::even(512, 2, 8);  // 32 rows
    EXPECT_EQ(small.end_of_product(0, 0), 4);
    EXPECT_EQ(small.end_of_product(1, 4), 8);
    EXPECT_EQ(small.end_of_product(1, 6), 8);         // no more are left
    const TileMap large = TileMap::even(2048, 2, 8);  // 128 rows
    for (int piece = 0; piece < 8; ++piece) EXPECT_EQ(large.end_of_product(0, piece), piece + 1);
    const TileMap between = TileMap::even(600, 1, 6);  // 96 or 112 rows
    EXPECT_EQ(between.end_of_product(0, 0), 2);
    EXPECT_EQ(between.end_of_product(0, 5), 6);
}

TEST(TileMap, EndsAreBytesFromTheMembersFirstRow) {
    const TileMap map = TileMap::even(200, 2, 2);  // 100 rows each: 48 and 52
    EXPECT_EQ(map.ends(0, 10), (std::vector<int64_t>{480, 1000}));
    EXPECT_EQ(map.ends(1, 10), (std::vector<int64_t>{480, 1000}));
    EXPECT_EQ(map.rows(1, 1), (RowRange{148, 200}));
}

TEST(TileMap, HugeNumbersOfRowsDoNotOverflow) {
    const int64_t most = std::numeric_limits<int64_t>::max();
    const TileMap map = TileMap::even(most, 7, 3);
    EXPECT_EQ(map.rows(), most);
    EXPECT_EQ(map.pieces(6), 3);
}

TEST(TileMap, RefusesWhatCannotBe) {
    EXPECT_THROW((void)TileMap::even(-1, 1, 1), UsageError);
    EXPECT_THROW((void)TileMap::even(1, 0, 1), UsageError);
    EXPECT_THROW((void)TileMap::even(1, 1, 0), UsageError);
    EXPECT_THROW((void)TileMap::of_counts({}, 1), UsageError);
    const std::vector<int64_t> negative{3, -1};
    EXPECT_THROW((void)TileMap::of_counts(negative, 32), UsageError);
    const std::vector<int64_t> one{3};
    EXPECT_THROW((void)TileMap::of_counts(one, 0), UsageError);
    const TileMap map = TileMap::even(64, 2, 1);
    EXPECT_THROW((void)map.rows(2), UsageError);
    EXPECT_THROW((void)map.rows(0, 1), UsageError);
    EXPECT_THROW((void)map.rows(0, -1), UsageError);
    EXPECT_THROW((void)map.pieces(-1), UsageError);
}

}  // namespace
}  // namespace vocabpipe
