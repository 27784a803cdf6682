// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/tile_functions.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

bool meet(const RowRange& a, const RowRange& b) {
    return std::max(a.first, b.first) < std::min(a.end, b.end);
}

void check(const TileGrid& grid) {
    const bool fine = grid.rows >= 0 && grid.columns >= 0 && grid.tile_rows >= 1 &&
                      grid.tile_columns >= 1 && grid.members >= 1 && grid.signals_per_member >= 0;
    if (fine) return;
    throw UsageError("tile grid: " + std::to_string(grid.rows) + " x " +
                     std::to_string(grid.columns) + " in tiles of " +
                     std::to_string(grid.tile_rows) + " x " + std::to_string(grid.tile_columns) +
                     " on " + std::to_string(grid.members) + " members with " +
                     std::to_string(grid.signals_per_member) + " signals each");
}

}  // namespace

TileFunctions functions_of(TileTables tables) {
    const auto kept = std::make_shared<const TileTables>(std::move(tables));
    const size_t tiles = kept->shape.size();
    if (kept->member.size() != tiles || kept->signal.size() != tiles) {
        throw UsageError("tile tables of " + std::to_string(tiles) + " shapes, " +
                         std::to_string(kept->member.size()) + " members and " +
                         std::to_string(kept->signal.size()) + " signals; give one per tile");
    }
    return {.tiles = static_cast<int64_t>(tiles),
            .shape = [kept](int64_t tile) { return kept->shape.at(static_cast<size_t>(tile)); },
            .member = [kept](int64_t tile) { return kept->member.at(static_cast<size_t>(tile)); },
            .signal = [kept](int64_t tile) { return kept->signal.at(static_cast<size_t>(tile)); }};
}

TileFunctions functions_of(const TileGrid& grid) {
    check(grid);
    TileTables tables;
    const int64_t rows_each = (grid.rows + grid.members - 1) / grid.members;
    for (int member = 0; member < grid.members; ++member) {
        const int64_t end = std::min(grid.rows, (member + 1) * rows_each);
        const size_t before = tables.shape.size();
        for (int64_t row = member * rows_each; row < end; row += grid.tile_rows) {
            const RowRange rows{row, std::min(end, row + grid.tile_rows)};
            for (int64_t column = 0; column < grid.columns; column += grid.tile_columns) {
                tables.shape.push_back(
                    {rows, {column, std::min(grid.columns, column + grid.tile_columns)}});
                tables.member.push_back(member);
            }
        }
        const size_t own = tables.shape.size() - before;
        const auto shared = static_cast<size_t>(grid.signals_per_member);
        for (size_t i = 0; i < own; ++i) {
            tables.signal.push_back(static_cast<int>(
                shared == 0 ? before + i
                            : static_cast<size_t>(member) * shared + i * shared / own));
        }
    }
    return functions_of(std::move(tables));
}

std::vector<int64_t> tiles_meeting(const TileFunctions& functions, const TileArea& part) {
    std::vector<int64_t> tiles;
    for (int64_t tile = 0; tile < functions.tiles; ++tile) {
        const TileArea shape = functions.shape(tile);
        if (meet(shape.rows, part.rows) && meet(shape.columns, part.columns)) tiles.push_back(tile);
    }
    return tiles;
}

}  // namespace vocabpipe
