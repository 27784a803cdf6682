// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/stream_edges.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// The one order in which a device with streams is given the actions of a program. Communication
/// keeps the global order among itself, so no rank waits on its streams in a circle (NCCL's rule
/// for several communicators), and passes keep theirs. Communication and local actions come before
/// the passes that they need not wait for: the host is never more than a part of a pass ahead of
/// the device, so what is enqueued after a pass starts when that is nearly over. Edges of the
/// program must point forward, as those that lowering makes do.
[[nodiscard]] std::vector<uint32_t> enqueue_order(const Program& program);

/// A rank's program, with all that its steps look up, made once.
struct LoadedProgram {
    LoadedProgram(const Program& program, bool asynchronous);

    [[nodiscard]] size_t actions() const { return program.actions.size(); }

    /// Index of the queue that has the passes.
    static constexpr size_t kPassQueue = static_cast<size_t>(Lane::compute);

    Program program;
    /// Actions in the order of their starts. The host has a queue for each lane and starts whatever
    /// is ready. An asynchronous device has one queue for all lanes, enqueue_order().
    std::vector<std::vector<uint32_t>> queues;
    StreamEdges edges;
    /// [action] Whose end its lane waits for, one action of each other lane at most; asynchronous
    /// devices.
    std::vector<std::vector<uint32_t>> waits;
    std::vector<uint32_t> users;   ///< [buffer] how many actions use it
    uint32_t report = UINT32_MAX;  ///< its Report pass; UINT32_MAX: it has no optimizer
    Timeline timeline;             ///< of its last step
};

}  // namespace vocabpipe
