// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Rows [first, end) of a tensor.
struct RowRange {
    int64_t first = 0;  ///< from 0
    int64_t end = 0;    ///< one after the last

    /// Number of rows.
    [[nodiscard]] constexpr int64_t size() const { return end - first; }
    /// Member by member.
    friend bool operator==(const RowRange&, const RowRange&) = default;
};

/// Which rows of a tensor belong to which member of a team, and in which pieces they travel. The
/// rows of member 0 come first, then those of member 1, and so on; a member's pieces are numbered
/// in the order of its rows. It depends only on its arguments, so that all members of a team make
/// the same one (even() for layers; of_counts() for experts).
///
/// Pieces are cut at multiples of 16 rows of their member and have at least 32 rows, unless the
/// member has fewer: products of at least 32 rows have the bits of one product of all rows.
class TileMap {
public:
    static constexpr int64_t kCut = 16;     ///< rows; cuts are at multiples of it
    static constexpr int64_t kFewest = 32;  ///< least rows of a piece, if the member has that many

    /// Member i of `members` has rows [rows i / members, rows (i + 1) / members), in `pieces`
    /// pieces of nearly equal size, or fewer if they would be too small. Throws UsageError for a
    /// negative number of rows, or less than one member or piece.
    [[nodiscard]] static TileMap even(int64_t rows, int members, int pieces);
    /// Member i has rows_of_member[i] rows, 0 allowed, in pieces of `rows_per_piece` rounded up to
    /// a multiple of kCut and to at least kFewest; a remainder of less than kFewest rows joins the
    /// last piece. Throws UsageError for a negative count, no member, or rows_per_piece < 1.
    [[nodiscard]] static TileMap of_counts(std::span<const int64_t> rows_of_member,
                                           int64_t rows_per_piece);

    /// Fewest rows of a product whose output is sent in pieces, unless fewer are left: every
    /// product packs the weight again, which takes about as long as multiplying 32 rows.
    static constexpr int64_t kFewestInProduct = 128;

    /// Members of the team.
    [[nodiscard]] int members() const { return static_cast<int>(first_piece_.size()) - 1; }
    /// Rows of all members.
    [[nodiscard]] int64_t rows() const { return cuts_.back(); }
    /// Rows of one member.
    [[nodiscard]] RowRange rows(int member) const;
    /// Rows of one piece, counted from the tensor's first row. Throws UsageError for a member or
    /// piece that does not exist, as all functions here.
    [[nodiscard]] RowRange rows(int member, int piece) const;
    /// Rows of pieces [first, end) of a member; 0 <= first < end.
    [[nodiscard]] RowRange rows(int member, int first, int end) const {
        return {rows(member, first).first, rows(member, end - 1).end};
    }
    /// Pieces of a member; 0 if it has no rows.
    [[nodiscard]] int pieces(int member) const;
    /// One after the last piece of a product that begins with piece `first` of a member and whose
    /// output is sent in pieces: the fewest pieces with kFewestInProduct rows, or all that are
    /// left.
    [[nodiscard]] int end_of_product(int member, int first) const;
    /// Calls body(first, end) with the pieces of each product of a member, in order.
    template <typename Body>
    void each_product(int member, const Body& body) const {
        for (int first = 0; first < pieces(member);) {
            const int end = end_of_product(member, first);
            body(first, end);
            first = end;
        }
    }
    /// Number of a member's first pieces that contain all its rows of `tile`; 0 if it has none of
    /// them.
    [[nodiscard]] int needed(int member, RowRange tile) const;
    /// Ends of the pieces of a member, in bytes from its first row (TileLink's `ends`).
    [[nodiscard]] std::vector<int64_t> ends(int member, int64_t row_bytes) const;

private:
    TileMap() = default;
    void check_member(int member) const;

    std::vector<int64_t> cuts_{0};     ///< where pieces begin and end, over all members
    std::vector<int> first_piece_{0};  ///< of each member in cuts_; and how many there are
};

}  // namespace vocabpipe
