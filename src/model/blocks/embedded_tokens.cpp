// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/embedded_tokens.hpp"

#include "src/model/views.hpp"
#include "vocabpipe/tile_link.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace vocabpipe {

namespace {

/// The first own row, of those that the ranks of a tensor team share.
int64_t first_own_row(const StagePass& pass) {
    return pass.team.cuts_rows() ? pass.team.tiles->rows(pass.team.link->rank()).first : 0;
}

/// Calls use(rows, position, length) for ranges of the own rows: each is one or more runs of
/// `length` tokens, and every run starts at `position` of its sequence. A rank that has whole
/// sequences has one range. Own rows in a tensor team may begin and end within a sequence, which
/// makes up to three ranges; on a context rank a run is a segment of a sequence, or a part of one.
template <typename Use>
void each_range(const StagePass& pass, int64_t own, const Use& use) {
    const int64_t length = pass.microbatch.seq_length;
    if (!pass.team.cuts_rows() && !pass.context) {
        use(kAllRows, pass.cached.count, length);
        return;
    }
    const int64_t first = first_own_row(pass);
    const int64_t longest = pass.context ? pass.context.cut->segment_length() : length;
    int64_t row = 0;
    while (row < own) {
        const int64_t token = (first + row) % length;  // of those that the rank has of the sequence
        const int64_t of_run = token % longest;
        const int64_t rest = own - row;
        const bool whole = !pass.context && of_run == 0 && rest >= length;
        // All whole sequences, or the rest or the beginning of a sequence or a segment.
        const int64_t count = whole ? rest / length * length : std::min(longest - of_run, rest);
        const int64_t position = pass.context ? pass.context.cut->position(token) : token;
        use(RowRange{row, row + count}, position, std::min(count, length));
        row += count;
    }
}

/// Learned positions that the microbatch gives for `own` rows; empty: it gives none.
std::span<const int32_t> given_positions(const StagePass& pass, int64_t own) {
    const std::span<const int32_t> all = pass.microbatch.positions;
    if (all.empty()) return all;
    return all.subspan(static_cast<size_t>(first_own_row(pass)), static_cast<size_t>(own));
}

}  // namespace

EmbeddedTokens::EmbeddedTokens(const EmbeddedTokensOptions& options, ParameterSource& parameters)
    : scale_(options.scale),
      learned_(options.positions.has_value()),
      positions_(learned_ ? parameters.next({.name = options.positions->name + ".weight",
                                             .rows = options.positions->positions,
                                             .cols = options.positions->hidden_size,
                                             .init_std = options.positions->init_std,
                                             .weight_decay = true})
                          : nullptr) {}

void EmbeddedTokens::forward(const StagePass& pass, ConstTensor x, Tensor y) const {
    const std::span<const int32_t> given = given_positions(pass, x.rows);
    if (learned_ && !given.empty()) {
        const ConstTensor weight = positions_->weight;
        pass.op().add_positions(pass.ctx, x, weight, pass.microbatch.seq_length, given, y);
    } else if (learned_) {
        each_range(pass, x.rows, [&](RowRange rows, int64_t position, int64_t length) {
            const ConstTensor positions = positions_->weight.row_range(position, length);
            pass.op().add_positions(pass.ctx, rows_of(x, rows), positions, length, {},
                                    rows_of(y, rows));
        });
    } else {
        pass.op().scale(pass.ctx, x, scale_, y);
    }
}

void EmbeddedTokens::backward_input(const StagePass& pass, Tensor dx) const {
    if (!learned_) pass.op().scale(pass.ctx, dx, scale_, dx);
}

void EmbeddedTokens::backward_weight(const StagePass& pass, ConstTensor dy) const {
    if (!learned_ || !positions_->gradient) return;
    const Tensor gradient = positions_->gradient;
    const std::span<const int32_t> given = given_positions(pass, dy.rows);
    if (!pass.team && !pass.context && given.empty()) {
        pass.op().positions_gradient(pass.ctx, dy, pass.microbatch.seq_length, gradient,
                                     pass.weight_gradients.accumulate);
        return;
    }
    if (!pass.weight_gradients.accumulate) {
        pass.op().set_zero(pass.ctx, bytes_of<std::byte>(gradient));
    }
    if (!given.empty()) {
        pass.op().embedding_scatter_add(pass.ctx, given, dy, 0, gradient, true);
        return;
    }
    each_range(pass, dy.rows, [&](RowRange rows, int64_t position, int64_t length) {
        pass.op().positions_gradient(pass.ctx, rows_of(dy, rows), length,
                                     gradient.row_range(position, length), true);
    });
}

}  // namespace vocabpipe
