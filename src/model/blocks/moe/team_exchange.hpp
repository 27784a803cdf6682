// SPDX-License-Identifier: Apache-2.0
// What ranks that share the experts of a layer exchange inside its passes (COMET, Zhang et al.
// 2025, arXiv 2502.19811): rows of tokens go to their experts and are computed as they arrive; what
// the experts made comes home by panels of columns, each of which leaves when it is complete.
#pragma once

#include "src/model/blocks/moe/placed_wave.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace vocabpipe {

/// What decides how large TeamMemory is.
struct TeamSizes {
    RoutingShape shape;
    int64_t hidden_size = 0;      ///< h, of what travels
    int64_t ffn_hidden_size = 0;  ///< f, of one expert
    int panels = 1;               ///< P, of what comes home
    DType dtype = DType::fp32;

    /// The columns of each panel.
    [[nodiscard]] TileMap columns() const { return TileMap::even(hidden_size, 1, panels); }
};

/// What a wave needs besides what it leaves; all of it is written before it is read.
struct TeamMemory {
    TeamMemory(Views& views, const TeamSizes& sizes);

    Bytes home;       ///< copies of own tokens that leave; what comes home
    Bytes copies;     ///< copies that arrive; what leaves for their homes
    Tensor weights;   ///< (copies, k) fp32: of the rows that a copy makes
    Tensor dweights;  ///< (copies, k) fp32: their gradients
    Tensor rows;      ///< (R, f) inside the experts, or a panel of what they make
};

/// One wave of a pass on one member.
struct TeamWave {
    const StagePass& pass;
    const TeamSizes& sizes;
    const PlacedWave& wave;
    const TeamMemory& memory;
    std::string_view name;  ///< of the experts, for messages
};

/// Done while messages travel; may be empty.
using Meanwhile = std::function<void()>;
/// Computes these rows [own expert], which are there.
using WorkOnRows = std::function<void(std::span<const RowRange>)>;
/// Makes these columns of all rows of the wave: (rows, columns).
using MakePanel = std::function<void(RowRange, Tensor)>;

/// Dispatch: rows (R, h) = the copies of all members' `own` (n, h) tokens, sorted as the wave says.
/// One copy of a token travels to a member. Rows are worked on as their copies arrive, own ones
/// first. `meanwhile` runs when all own tokens have left; `work` may be empty.
void dispatch_tokens(const TeamWave& team, ConstTensor own, const Meanwhile& meanwhile, Tensor rows,
                     const WorkOnRows& work);

/// What combine_at_home() adds up.
struct Combination {
    ConstTensor weights = {};   ///< of rows: TeamMemory::weights; empty: 1
    ConstTensor residual = {};  ///< (n, h) or empty
    Tensor out;                 ///< (n, h), may be residual
    /// (n, k): gets the gradients of the weights, TeamMemory::dweights of all owners; empty: none.
    Tensor dweights = {};
    bool accumulate = false;  ///< dweights gets them besides what it has
};

/// Combine: out = residual + for every own token the sum of the rows that it has in this wave: on
/// each member over its experts in the order of the token's choices, rounded to the run's type; at
/// home over the members in their order, in fp32, rounded once. `meanwhile` runs when all panels
/// have left.
void combine_at_home(const TeamWave& team, const MakePanel& make, const Combination& sum,
                     const Meanwhile& meanwhile);

/// What all members' routers chose: routes (2 e n, k) of 32-bit elements = for every member in turn
/// its choices, then its weights (fp32). `choice` and `weights` (n, k): own.
void gather_routes(const StagePass& pass, ConstTensor choice, ConstTensor weights, Tensor routes,
                   std::string_view name);

}  // namespace vocabpipe
