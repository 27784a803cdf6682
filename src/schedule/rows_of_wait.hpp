// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/ops.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/tile_map.hpp"
#include "vocabpipe/timeline.hpp"

#include <string>

namespace vocabpipe {

/// "rows 128-255 of rank 5": the last rows of the microbatch, from 0, that a pass waited for, and
/// their sender.
[[nodiscard]] inline std::string rows_of_wait(const Program& program, const PieceWait& wait) {
    const Action& moves = program.actions[wait.source];
    const Group& group = program.groups[moves.group];
    const int sender =
        traits(moves.what).peer == NamedPeer::from_first ? group.ranks.front() : group.root;
    const RowRange rows =
        TileMap::even(program.tokens_of(moves), 1, moves.pieces).rows(0, wait.piece - 1);
    return "rows " + std::to_string(rows.first) + "-" + std::to_string(rows.end - 1) + " of rank " +
           std::to_string(sender);
}

}  // namespace vocabpipe
