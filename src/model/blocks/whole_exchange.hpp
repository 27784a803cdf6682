// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/stage_pass.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_link.hpp"

#include <functional>
#include <string_view>

namespace vocabpipe {

/// An all-gather without pieces: every member's part(member), of equal sizes, comes to all; the own
/// one is where it shall be. `make` makes it, once receives are posted; empty: it is made. `what`:
/// for messages.
void exchange_whole(TileLink& link, std::string_view what, const std::function<Tensor(int)>& part,
                    const std::function<void()>& make = {});

/// An all-reduce without pieces, where every member has all rows: out (rows, cols) = what
/// make(partial) makes of each member's, added up in member order in fp32, plus bias and residual
/// (Operators::fold_partials()); the same bits on all. partials: (members rows, cols), to work in.
void sum_whole(const StagePass& pass, TileLink& link, std::string_view name, Tensor partials,
               const std::function<void(Tensor)>& make, ConstTensor bias, ConstTensor residual,
               Tensor out);

}  // namespace vocabpipe
