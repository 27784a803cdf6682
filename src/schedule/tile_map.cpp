// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/tile_map.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

namespace {

void require_rows(int64_t rows) {
    if (rows >= 0) return;
    throw UsageError("tile map of " + std::to_string(rows) + " rows: must be at least 0");
}

void require_positive(const char* what, int64_t value) {
    if (value >= 1) return;
    throw UsageError("tile map of " + std::to_string(value) + " " + what + ": must be at least 1");
}

}  // namespace

TileMap TileMap::even(int64_t rows, int members, int pieces) {
    require_rows(rows);
    require_positive("members", members);
    require_positive("pieces", pieces);
    TileMap map;
    const int64_t each = rows / members;
    const int64_t rest = rows % members;  // rows * i could overflow
    const auto begin = [&](int64_t i) { return each * i + rest * i / members; };
    for (int64_t i = 0; i < members; ++i) {
        const int64_t own = begin(i + 1) - begin(i);
        // Blocks of kCut rows, spread evenly; the last piece takes the rest.
        const int64_t blocks = own / kCut;
        const int64_t count = std::clamp<int64_t>(own / kFewest, 1, pieces);
        const int64_t first = map.cuts_.back();
        for (int64_t k = 1; own > 0 && k <= count; ++k) {
            map.cuts_.push_back(first + (k == count ? own : kCut * (blocks * k / count)));
        }
        map.first_piece_.push_back(static_cast<int>(map.cuts_.size()) - 1);
    }
    return map;
}

TileMap TileMap::of_counts(std::span<const int64_t> rows_of_member, int64_t rows_per_piece) {
    require_positive("members", static_cast<int64_t>(rows_of_member.size()));
    require_positive("rows per piece", rows_per_piece);
    // Larger values change nothing, because no piece has more than all rows.
    constexpr int64_t kMost = int64_t{1} << 48;
    const int64_t step =
        std::max(kFewest, (std::min(rows_per_piece, kMost) - 1) / kCut * kCut + kCut);
    TileMap map;
    for (const int64_t own : rows_of_member) {
        require_rows(own);
        const int64_t first = map.cuts_.back();
        for (int64_t at = step; own - at >= kFewest; at += step) map.cuts_.push_back(first + at);
        if (own > 0) map.cuts_.push_back(first + own);
        map.first_piece_.push_back(static_cast<int>(map.cuts_.size()) - 1);
    }
    return map;
}

void TileMap::check_member(int member) const {
    if (member >= 0 && member < members()) return;
    throw UsageError("tile map: member " + std::to_string(member) + " of " +
                     std::to_string(members()) + "; members are numbered from 0");
}

RowRange TileMap::rows(int member) const {
    check_member(member);
    const auto at = static_cast<size_t>(member);
    return {cuts_[static_cast<size_t>(first_piece_[at])],
            cuts_[static_cast<size_t>(first_piece_[at + 1])]};
}

RowRange TileMap::rows(int member, int piece) const {
    if (piece < 0 || piece >= pieces(member)) {
        throw UsageError("tile map: piece " + std::to_string(piece) + " of member " +
                         std::to_string(member) + ", which has " + std::to_string(pieces(member)) +
                         "; pieces are numbered from 0");
    }
    const auto at = static_cast<size_t>(first_piece_[static_cast<size_t>(member)] + piece);
    return {cuts_[at], cuts_[at + 1]};
}

int TileMap::pieces(int member) const {
    check_member(member);
    const auto at = static_cast<size_t>(member);
    return first_piece_[at + 1] - first_piece_[at];
}

int TileMap::end_of_product(int member, int first) const {
    const int all = pieces(member);
    int end = first + 1;
    while (end < all && rows(member, first, end).size() < kFewestInProduct) ++end;
    return end;
}

int TileMap::needed(int member, RowRange tile) const {
    const RowRange own = rows(member);
    const int64_t last = std::min(tile.end, own.end);  // one after the last row asked for
    if (last <= std::max(tile.first, own.first)) return 0;
    const auto begin = cuts_.begin() + first_piece_[static_cast<size_t>(member)];
    return static_cast<int>(std::lower_bound(begin, cuts_.end(), last) - begin);
}

std::vector<int64_t> TileMap::ends(int member, int64_t row_bytes) const {
    std::vector<int64_t> result;
    const int64_t first = rows(member).first;
    for (int piece = 0; piece < pieces(member); ++piece) {
        result.push_back((rows(member, piece).end - first) * row_bytes);
    }
    return result;
}

}  // namespace vocabpipe
