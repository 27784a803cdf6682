// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/symmetric_memory.hpp"
#include "vocabpipe/tile_functions.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace vocabpipe {

/// Options of a TileOperation, equal on all members.
struct TileOperationOptions {
    std::string name;           ///< for messages, such as "ring all-gather of x"
    TileFunctions functions;    ///< f_S, f_R, f_C
    int64_t columns = 0;        ///< of the matrix
    int64_t element_bytes = 1;  ///< bytes of an element
    int64_t offset = 0;         ///< bytes of the buffers before the matrix, in every member's
    int first_signal = 0;       ///< f_C counts from here, so that operations do not share signals
};

/// TileLink's primitives on the tiles of a matrix (Zheng et al. 2025, arXiv 2503.20313, table 3):
/// every member's symmetric buffer has room for the whole matrix, row by row, and a signal for each
/// value of f_C. A tile's signal says that all tiles with this signal are there: each of them is
/// pushed or notified once a round. prove_tiles() proves a program of them before it runs.
///
/// Errors as in SymmetricMemory, with the operation's name and the tile.
class TileOperation {
public:
    /// `memory` must outlive it. Throws UsageError for a function that is missing.
    TileOperation(SymmetricMemory& memory, TileOperationOptions options);

    /// tile_push_data with producer_tile_notify: this member's tile to its place at another one.
    void push(int64_t tile, int member);
    /// tile_pull_data: a member's tile to its place here; wait for it to be made first.
    void pull(int64_t tile, int member);
    /// producer_tile_notify (p2p): the tile is there, at the member that f_R names.
    void notify(int64_t tile) { notify(tile, options_.functions.member(tile)); }
    /// peer_tile_notify: at any member.
    void notify(int64_t tile, int member);
    /// producer_tile_notify (broadcast): at all members.
    void notify_all(int64_t tile);
    /// consumer_tile_wait and peer_tile_wait: waits until the tile is there in this round.
    void wait(int64_t tile);
    /// Whether it is.
    [[nodiscard]] bool test(int64_t tile);
    /// Begins another round. Every member does so; all signals of the last round must have come.
    void next_round() { ++round_; }

private:
    [[nodiscard]] TilePlace place_of(int64_t tile) const;
    [[nodiscard]] int signal_of(int64_t tile) const;
    [[nodiscard]] uint64_t needed(int64_t tile) const;

    SymmetricMemory& memory_;
    TileOperationOptions options_;
    std::map<int, uint64_t> tiles_of_;  ///< [f_C] how many tiles
    uint64_t round_ = 1;
};

}  // namespace vocabpipe
