// SPDX-License-Identifier: Apache-2.0
// What the ranks that share a stage exchange inside its passes. A rank's own rows are those of the
// residual stream, N/t of a microbatch's N tokens; a product needs or makes all N. In generation
// (TensorTeam::cuts_rows()) all rows are own rows: a token more often comes alone than with t - 1
// others, and a product reads its weights once for all rows.
#pragma once

#include "src/model/blocks/stage_pass.hpp"

#include <functional>
#include <span>
#include <string_view>

namespace vocabpipe {

/// work(rows of some pieces, which they are among the N). The bits of the N must not depend on how
/// many come together.
using WorkOnPiece = std::function<void(ConstTensor, RowRange)>;
/// Makes this rank's part of the product of these rows of the N.
using MakePartial = std::function<void(RowRange, Tensor)>;

/// What is added to a sum over the team, once.
struct Addends {
    ConstTensor bias = {};      ///< (1, cols) or empty
    ConstTensor residual = {};  ///< (N/t, cols) or empty
};

/// All-gather: `own` (N/t, cols) of all members, (N, cols), in the pass's scratch until the next
/// exchange. Pieces are worked on as they arrive, those that are there together, because every
/// product packs the weight again: own rows first, then members in ring order.
/// `name`: of the product, for messages. Alone, and where all rows are own ones: one piece, all
/// rows of `own`, which it returns.
ConstTensor gather_rows(const StagePass& pass, ConstTensor own, std::string_view name,
                        const WorkOnPiece& work = {});

/// Reduce-scatter, in a team of more than one: out (N/t, cols) = the sum of all members' partial
/// products of its rows, in member order, plus the addends, rounded once. Each piece leaves as it
/// is made: rows of the next member first, own rows last and at once. Partials have out's type. out
/// may be the residual. Where all rows are own ones, an all-reduce: every member adds up all of
/// them, in the same order.
void sum_rows(const StagePass& pass, std::string_view name, const MakePartial& make,
              const Addends& addends, Tensor out);

/// In a team of more than one: each of `numbers`, (1, count) fp32, becomes the sum of all members',
/// in member order. Uses pass.scratch.workspace: t times their bytes.
void sum_numbers(const StagePass& pass, std::span<const Tensor> numbers, std::string_view name);

}  // namespace vocabpipe
