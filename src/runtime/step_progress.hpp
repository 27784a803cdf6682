// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/loaded_program.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// How far a rank is in its step: what has been started, what has ended, what may start.
struct StepProgress {
    /// A communication that the transport has not reported yet.
    struct InFlight {
        uint32_t action = 0;
        size_t span = 0;
        Ticket ticket = 0;
        int piece = 0;
    };
    /// A communication that travels by pieces, or waits for the rows of a pass that runs.
    struct Stream {
        uint32_t action = 0;
        size_t span = 0;
        TileMap pieces;        ///< of its rows, as those of one member
        int started = 0;       ///< pieces given to the transport
        uint64_t arrived = 0;  ///< bit for each of them
    };

    /// Nothing of the program has been started.
    void begin(LoadedProgram& program);

    [[nodiscard]] const Action& action(uint32_t index) const {
        return loaded->program.actions[index];
    }
    /// Everything has run.
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
    /// The next pass, or the one that is being enqueued or waits for rows; null after the last one.
    [[nodiscard]] const uint32_t* current_pass() const;
    /// The action has ended, or on a device with streams has been enqueued: what waits for it may
    /// start.
    void complete(uint32_t action);
    /// The first rows of the action are there: what streams from it may start.
    void begin_rows(uint32_t action);

    LoadedProgram* loaded = nullptr;
    std::vector<uint32_t> missing;     ///< [action] edges still to come
    std::vector<uint32_t> waited_for;  ///< [action] the last of them; UINT32_MAX: none
    std::vector<size_t> head;          ///< [queue] its next action
    std::vector<InFlight> in_flight;
    std::vector<Stream> streams;    ///< that have begun and not ended
    std::vector<int64_t> rows;      ///< [action] made or received so far; empty without streams
    std::vector<uint32_t> started;  ///< actions, in the order of their starts
    size_t done = 0;                ///< actions whose successors may start
    size_t settled = 0;             ///< of started: have run
    size_t pieces = 0;              ///< that were started, and that have travelled
    /// Of started and settled ones that are no passes, in pieces: what lanes hold of them.
    size_t pieces_enqueued = 0, pieces_settled = 0;
    int64_t awaited_rows = 0;  ///< of the streaming pass's input: its lane waits for no more yet
    uint32_t streaming_pass = StreamEdges::kNone;  ///< that runs, if it has streamed edges
    bool enqueues_pass = false;                    ///< a pass is between its begin and its end
};

}  // namespace vocabpipe
