// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/successors.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A rank's program, with all that its steps look up, made once.
struct LoadedProgram {
    LoadedProgram(const Program& program, bool asynchronous);

    [[nodiscard]] size_t actions() const { return program.actions.size(); }

    Program program;
    /// [lane] Actions in the order of their starts. Streams take what was enqueued in order, so
    /// with an asynchronous device all communication is enqueued in the one global order, from the
    /// collective lane's queue: then no rank waits on its streams in a circle (NCCL's rule for
    /// several communicators). The host starts whatever lane is ready.
    std::array<std::vector<uint32_t>, kLanes> queues;
    Successors successors;
    /// [action] What its lane waits for, one action of each other lane at most; asynchronous
    /// devices.
    std::vector<std::vector<uint32_t>> waits;
    std::vector<uint32_t> users;  ///< [buffer] how many actions use it
    Timeline timeline;            ///< of its last step
};

}  // namespace vocabpipe
