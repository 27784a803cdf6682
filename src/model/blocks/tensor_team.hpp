// SPDX-License-Identifier: Apache-2.0
// Exchanges inside the passes of a stage that ranks share. A rank's own rows are its N/t rows of
// the residual stream, of a microbatch's N tokens; a product needs or makes all N. In generation
// (cuts_rows() of TensorTeam is false) all rows are own rows: tokens mostly come one at a time,
// which leaves no rows to share, and a product reads its weights once for all rows.
#pragma once

#include "src/model/blocks/stage_pass.hpp"

#include <functional>
#include <span>
#include <string_view>

namespace vocabpipe {

/// work(rows, their range among the N) for one or more pieces. The results must not depend, bit by
/// bit, on how many pieces come together.
using WorkOnPiece = std::function<void(ConstTensor, RowRange)>;
/// Computes this rank's partial product of these rows of the N.
using MakePartial = std::function<void(RowRange, Tensor)>;

/// Terms that are added once to a sum over the team.
struct Addends {
    ConstTensor bias = {};      ///< (1, cols) or empty
    ConstTensor residual = {};  ///< (N/t, cols) or empty
};

/// All-gather: returns `own` (N/t, cols) of all members, (N, cols), in the pass's scratch until the
/// next exchange. Pieces are worked on as they arrive: own rows first, then members in ring order;
/// pieces that have arrived are taken together, because every product packs the weight again.
/// `name`: of the product, for messages. Without a team, and where all rows are own ones, `own` is
/// the one piece and the result.
ConstTensor gather_rows(const StagePass& pass, ConstTensor own, std::string_view name,
                        const WorkOnPiece& work = {});

/// Reduce-scatter, in a team of more than one: out (N/t, cols) = the sum of all members' partial
/// products of its rows, in member order, plus the addends, rounded once. Each piece leaves as soon
/// as it is made: rows of the next member first, own rows last and in one piece. Partials have
/// out's type. out may be the residual. Where all rows are own ones, this is an all-reduce: every
/// member adds up all of them, in the same order.
void sum_rows(const StagePass& pass, std::string_view name, const MakePartial& make,
              const Addends& addends, Tensor out);

/// Each of `numbers`, (1, count) fp32, becomes its sum over all members of the link, in member
/// order. Uses pass.scratch.workspace: their bytes times the members.
void sum_numbers(const StagePass& pass, TileLink& link, std::span<const Tensor> numbers,
                 std::string_view name);

}  // namespace vocabpipe
