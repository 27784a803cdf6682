// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace vocabpipe {

/// The part of a matrix that a tile covers.
struct TileArea {
    RowRange rows;     ///< rows of the matrix
    RowRange columns;  ///< columns of the matrix, counted likewise
    /// Member by member.
    friend bool operator==(const TileArea&, const TileArea&) = default;
};

/// TileLink's mapping of tiles 0, 1, ..., tiles - 1 (Zheng et al. 2025, arXiv 2503.20313, section
/// 4): static formulas, or look-ups in dynamic tables (functions_of()). They depend on the tile
/// alone, so that all members compute the same.
struct TileFunctions {
    int64_t tiles = 0;                       ///< how many
    std::function<TileArea(int64_t)> shape;  ///< f_S: its rows and columns
    std::function<int(int64_t)> member;      ///< f_R: the member whose it is
    /// f_C: the signal that says it is there; of several tiles: that all of them are.
    std::function<int(int64_t)> signal;
};

/// Dynamic tables, [tile], such as routing makes them.
struct TileTables {
    std::vector<TileArea> shape;  ///< f_S
    std::vector<int> member;      ///< f_R
    std::vector<int> signal;      ///< f_C
};
/// Functions that keep the tables. Throws UsageError for tables of different lengths.
[[nodiscard]] TileFunctions functions_of(TileTables tables);

/// A matrix cut into tiles; member i of m owns rows [i r, (i + 1) r), r = rows / m rounded up. No
/// tile lies on two members. Tiles are numbered by member, then by row, then by column.
struct TileGrid {
    int64_t rows = 0;          ///< of the matrix
    int64_t columns = 0;       ///< of the matrix
    int64_t tile_rows = 0;     ///< of a tile; fewer at the end of a member
    int64_t tile_columns = 0;  ///< of a tile; fewer at the end of a row
    int members = 1;           ///< owners of rows
    /// A member's tiles share so many signals, neighbours the same one; 0: each has its own.
    int signals_per_member = 0;
};
/// Functions of a grid. Throws UsageError unless the numbers are positive (rows and columns, and
/// signals_per_member: not negative).
[[nodiscard]] TileFunctions functions_of(const TileGrid& grid);

/// Tiles that have an element in these rows and columns, ascending: what a consumer waits for.
[[nodiscard]] std::vector<int64_t> tiles_meeting(const TileFunctions& functions,
                                                 const TileArea& part);

}  // namespace vocabpipe
