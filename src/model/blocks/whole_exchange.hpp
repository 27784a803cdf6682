// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/stage_pass.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_link.hpp"

#include <functional>
#include <string_view>

namespace vocabpipe {

/// An all-gather without pieces: part(member) of every member, of equal sizes, gets to all members.
/// The own part is already in place, or `make` computes it there once receives are posted; an empty
/// `make` means that it is complete. `what`: for messages.
void exchange_whole(TileLink& link, std::string_view what, const std::function<Tensor(int)>& part,
                    const std::function<void()>& make = {});

/// An all-reduce without pieces, where every member has all rows: out (rows, cols) = the members'
/// partials, which make(partial) computes, added up in member order in fp32, plus bias and residual
/// (Operators::fold_partials()). All members get the same bits. partials: scratch of (members rows,
/// cols).
void sum_whole(const StagePass& pass, TileLink& link, std::string_view name, Tensor partials,
               const std::function<void(Tensor)>& make, ConstTensor bias, ConstTensor residual,
               Tensor out);

}  // namespace vocabpipe
