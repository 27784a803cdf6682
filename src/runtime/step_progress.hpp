// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/loaded_program.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Progress of a rank in its step: actions that have started, have ended, or may start.
struct StepProgress {
    /// A communication that the transport has not completed.
    struct InFlight {
        uint32_t action = 0;
        size_t span = 0;
        Ticket ticket = 0;
        int piece = 0;
    };
    /// A communication that is sent in pieces, or waits for the rows of a running pass.
    struct Stream {
        uint32_t action = 0;
        size_t span = 0;
        TileMap pieces;        ///< pieces of its rows, as one member
        int started = 0;       ///< pieces given to the transport
        uint64_t arrived = 0;  ///< a bit for each piece
    };

    /// Resets everything for a step of `program`.
    void begin(LoadedProgram& program);

    [[nodiscard]] const Action& action(uint32_t index) const {
        return loaded->program.actions[index];
    }
    /// Whether everything has run.
    [[nodiscard]] bool is_over() const {
        return done == loaded->actions() && settled == started.size();
    }
    /// Grows whenever anything starts or ends.
    [[nodiscard]] size_t moves() const { return done + started.size() + settled + pieces; }

    /// The next action of a queue; null if there is none or it waits for another action.
    [[nodiscard]] const uint32_t* ready(size_t queue) const {
        const std::vector<uint32_t>& actions = loaded->queues[queue];
        if (head[queue] == actions.size() || missing[actions[head[queue]]] > 0) return nullptr;
        return &actions[head[queue]];
    }
    /// The pass that is being enqueued or waits for rows, else the next one; null after the last
    /// one.
    [[nodiscard]] const uint32_t* current_pass() const;
    /// Records that the action has ended or, on a device with streams, has been enqueued: actions
    /// that wait for it may start.
    void complete(uint32_t action);
    /// Records that the first rows of the action are ready: actions with a streamed edge from it
    /// may start.
    void begin_rows(uint32_t action);

    LoadedProgram* loaded = nullptr;
    std::vector<uint32_t> missing;     ///< [action] edges not yet satisfied
    std::vector<uint32_t> waited_for;  ///< [action] last action waited for; UINT32_MAX: none
    std::vector<size_t> head;          ///< [queue] its next action
    std::vector<InFlight> in_flight;
    std::vector<Stream> streams;    ///< begun and not ended
    std::vector<int64_t> rows;      ///< [action] made or received so far; empty without streams
    std::vector<uint32_t> started;  ///< actions, in the order of their starts
    size_t done = 0;                ///< actions whose successors may start
    size_t settled = 0;             ///< actions of `started` that have run
    size_t pieces = 0;              ///< starts and arrivals of pieces
    /// Started and settled actions other than passes, in pieces; the difference is in the lanes.
    size_t pieces_enqueued = 0, pieces_settled = 0;
    int64_t awaited_rows = 0;  ///< rows of the streaming pass's input that its lane waits for
    uint32_t streaming_pass = StreamEdges::kNone;  ///< the running pass, if it has streamed edges
    bool enqueues_pass = false;                    ///< a pass is between its begin and its end
};

}  // namespace vocabpipe
