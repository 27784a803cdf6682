// SPDX-License-Identifier: Apache-2.0
// Exchanges inside the passes of a layer whose experts ranks share (COMET, Zhang et al. 2025, arXiv
// 2502.19811): rows of tokens go to their experts and are computed as they arrive; the results come
// home by panels of columns, each of which leaves when it is complete.
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

/// Sizes that determine TeamMemory.
struct TeamSizes {
    RoutingShape shape;
    int64_t hidden_size = 0;      ///< h, columns of the rows that travel
    int64_t ffn_hidden_size = 0;  ///< f, of one expert, on one member
    int panels = 1;               ///< P, of the results that come home
    DType dtype = DType::fp32;

    /// The columns of each panel.
    [[nodiscard]] TileMap columns() const { return TileMap::even(hidden_size, 1, panels); }
};

/// Scratch memory of a wave; all of it is written before it is read.
struct TeamMemory {
    TeamMemory(Views& views, const TeamSizes& sizes);

    Bytes home;       ///< copies of own tokens that leave; results that come home
    Bytes copies;     ///< copies that arrive; results that leave for their homes
    Tensor weights;   ///< (copies, k) fp32: weights of a copy's rows
    Tensor dweights;  ///< (copies, k) fp32: their gradients
    Tensor rows;      ///< (R, f) inside the experts, or a panel of their output
};

/// One wave of a pass on one member.
struct TeamWave {
    const StagePass& pass;
    const TeamSizes& sizes;
    const PlacedWave& wave;
    const TeamMemory& memory;
    std::string_view name;  ///< of the experts, for messages
};

/// Runs while messages travel; may be empty.
using Meanwhile = std::function<void()>;
/// Computes these rows [own expert], which have arrived.
using WorkOnRows = std::function<void(std::span<const RowRange>)>;
/// Computes these columns of all rows of the wave: (rows, columns).
using MakePanel = std::function<void(RowRange, Tensor)>;

/// Dispatch: rows (R, h) = the copies of all members' `own` (n, h) tokens, sorted as in the wave.
/// One copy of a token travels to a member. Rows are worked on as their copies arrive, own ones
/// first. `meanwhile` runs when all own tokens have left; `work` may be empty.
void dispatch_tokens(const TeamWave& team, ConstTensor own, const Meanwhile& meanwhile, Tensor rows,
                     const WorkOnRows& work);

/// The terms and results of combine_at_home().
struct Combination {
    ConstTensor weights = {};   ///< of rows: TeamMemory::weights; empty: all 1
    ConstTensor residual = {};  ///< (n, h) or empty
    Tensor out;                 ///< (n, h), may be residual
    /// (n, k): gets the gradients of the weights, TeamMemory::dweights of all owners; empty: none.
    Tensor dweights = {};
    bool accumulate = false;  ///< adds to what dweights has
};

/// Combine: out = residual + the sum of each own token's rows in this wave. Each member sums over
/// its experts in the order of the token's choices and rounds to the run's type; the home sums over
/// members in member order, in fp32, and rounds once. `meanwhile` runs when all panels have left.
void combine_at_home(const TeamWave& team, const MakePanel& make, const Combination& sum,
                     const Meanwhile& meanwhile);

/// Gathers the choices of all members' routers: routes (2 e n, k) of 32-bit elements = for every
/// member in turn its choices, then its weights (fp32). `choice` and `weights` (n, k): own.
void gather_routes(const StagePass& pass, ConstTensor choice, ConstTensor weights, Tensor routes,
                   std::string_view name);

}  // namespace vocabpipe
