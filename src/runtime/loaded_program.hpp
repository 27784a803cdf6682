// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/stream_edges.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// The order in which actions of a program are enqueued on a device with streams. Communication
/// keeps the global order, so that streams of several ranks do not wait in a cycle (NCCL's rule for
/// several communicators), and passes keep theirs. Communication and local actions come before
/// passes that they need not wait for: the host is never more than a part of a pass ahead of the
/// device, so an action enqueued after a pass starts when the pass is nearly over. Edges of the
/// program must point forward, as those from lowering do.
[[nodiscard]] std::vector<uint32_t> enqueue_order(const Program& program);

/// A rank's program with the tables that its steps use.
struct LoadedProgram {
    LoadedProgram(const Program& program, bool asynchronous);

    [[nodiscard]] size_t actions() const { return program.actions.size(); }

    /// Index of the queue that has the passes.
    static constexpr size_t kPassQueue = static_cast<size_t>(Lane::compute);

    Program program;
    /// Actions in the order of their starts. The host has one queue per lane and starts any that is
    /// ready. An asynchronous device has one queue for all lanes, enqueue_order().
    std::vector<std::vector<uint32_t>> queues;
    StreamEdges edges;
    /// [action] Actions for whose end its lane waits, at most one of each other lane; for
    /// asynchronous devices.
    std::vector<std::vector<uint32_t>> waits;
    std::vector<uint32_t> users;   ///< [buffer] number of actions that use it
    uint32_t report = UINT32_MAX;  ///< its Report pass; UINT32_MAX: no optimizer
    Timeline timeline;             ///< of its last step
};

}  // namespace vocabpipe
