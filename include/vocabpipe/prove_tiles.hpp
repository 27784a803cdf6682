// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tile_functions.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// What a member does with a tile.
enum class TileAction : uint8_t {
    make,  ///< push, or notify: raises the tile's signal at a member
    wait,  ///< waits for the tile's signal here
};

/// One step of a member, in its order.
struct TileStep {
    TileAction action = TileAction::make;  ///< what it does
    int operation = 0;                     ///< index in the operations of prove_tiles()
    int64_t tile = 0;                      ///< with which tile of the operation
    int member = -1;                       ///< make: where; -1: f_R of the tile
};

/// An operation to prove, once through.
struct ProvedOperation {
    std::string name;         ///< for messages
    TileFunctions functions;  ///< f_S is not needed
};

/// Proves before a run that members who take these steps in order end, however long any of them
/// takes: every tile that a member waits for, and every other that shares its signal, is made for
/// it exactly once, and there is no circle of waits over members and operations. `steps`: [member].
/// Throws UsageError that names rank (a member's number), operation and tile otherwise, and for
/// operations, tiles or members that do not exist.
void prove_tiles(std::span<const ProvedOperation> operations,
                 std::span<const std::vector<TileStep>> steps);

}  // namespace vocabpipe
