// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace vocabpipe {

/// All rows of a tensor, for rows_of().
inline constexpr RowRange kAllRows{.first = 0, .end = -1};

/// These rows of the tensor; an empty tensor stays empty.
template <typename Pointer>
[[nodiscard]] BasicTensor<Pointer> rows_of(const BasicTensor<Pointer>& tensor, RowRange rows) {
    return !tensor || rows.end < 0 ? tensor : tensor.row_range(rows.first, rows.size());
}

/// While it lives, operators get parts of tensors of `rows` rows and give the bits of one call with
/// all of them (Context::take_part_of).
class PartOfRows {
public:
    PartOfRows(Context& ctx, int64_t rows) : ctx_(ctx) { ctx_.take_part_of(rows); }
    ~PartOfRows() { ctx_.take_part_of(0); }
    PartOfRows(const PartOfRows&) = delete;
    PartOfRows& operator=(const PartOfRows&) = delete;

private:
    Context& ctx_;
};

/// The rows that a block reads or makes, in the pieces in which they travel between ranks. By
/// default all rows are one piece without waits.
class RowPieces {
public:
    using Work = std::function<void(RowRange)>;

    RowPieces() = default;
    /// Pieces of the pass's input: each is awaited before it is worked on.
    [[nodiscard]] static RowPieces of_input(Context& ctx, int64_t rows) {
        StreamedRows* const streamed = ctx.streamed();
        if (streamed == nullptr) return {};
        RowPieces pieces(ctx, rows, streamed->input_pieces());
        pieces.before_ = [streamed](RowRange piece) { streamed->need(piece.end); };
        return pieces;
    }
    /// Pieces of the pass's output: each may leave once it has been worked on.
    [[nodiscard]] static RowPieces of_output(Context& ctx, int64_t rows) {
        StreamedRows* const streamed = ctx.streamed();
        if (streamed == nullptr) return {};
        RowPieces pieces(ctx, rows, streamed->output_pieces());
        pieces.after_ = [streamed](RowRange piece) { streamed->made(piece.end); };
        return pieces;
    }

    /// false: all rows at once.
    [[nodiscard]] explicit operator bool() const { return !pieces_.empty(); }
    /// Adds work to be done just before a piece is worked on, after such work added earlier.
    [[nodiscard]] RowPieces prepared_by(Work work) const {
        RowPieces pieces = *this;
        pieces.before_ = [first = before_, then = std::move(work)](RowRange piece) {
            if (first) first(piece);
            then(piece);
        };
        return pieces;
    }
    /// Adds work to be done just after a piece has been worked on, before such work added earlier.
    [[nodiscard]] RowPieces finished_by(Work work) const {
        RowPieces pieces = *this;
        pieces.after_ = [first = std::move(work), then = after_](RowRange piece) {
            first(piece);
            if (then) then(piece);
        };
        return pieces;
    }

    /// Calls work(RowRange) for every piece, in order; once with kAllRows if there are no pieces.
    template <typename OfPiece>
    void each(OfPiece&& work) const {
        if (pieces_.empty()) {
            work(kAllRows);
            return;
        }
        const PartOfRows part(*ctx_, pieces_.back().end);
        for (const RowRange piece : pieces_) {
            if (before_) before_(piece);
            work(piece);
            if (after_) after_(piece);
        }
    }
    /// Waits for all input, or releases all output.
    void all() const {
        each([](RowRange) {});
    }

private:
    RowPieces(Context& ctx, int64_t rows, int count) : ctx_(&ctx) {
        const TileMap map = TileMap::even(rows, 1, count);
        for (int i = 0; i < map.pieces(0); ++i) pieces_.push_back(map.rows(0, i));
    }

    Context* ctx_ = nullptr;
    std::vector<RowRange> pieces_;
    Work before_, after_;
};

}  // namespace vocabpipe
