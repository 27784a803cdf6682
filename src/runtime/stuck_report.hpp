// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/lanes.hpp"
#include "src/runtime/step_progress.hpp"
#include "src/runtime/wait.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// Describes what a rank without progress waits for.
class StuckReport {
public:
    /// All must outlive this.
    StuckReport(int rank, bool asynchronous, const StepProgress& progress, Lanes& lanes)
        : rank_(rank), asynchronous_(asynchronous), progress_(progress), lanes_(lanes) {}

    /// The action at which the rank is stuck, and the communication and the peer for which it
    /// waits: "rank 1: step 21: waits at 1F3 for receive from rank 0 activation of microbatch 3".
    [[nodiscard]] std::string where(int64_t step) const;
    /// Throws the CommunicationError of a wait that timed out or was interrupted.
    [[noreturn]] void give_up(int64_t step, const IdleWait& idle, IdleWait::Verdict verdict) const;

private:
    [[nodiscard]] std::string at() const;
    [[nodiscard]] std::string awaited() const;
    [[nodiscard]] std::vector<uint32_t> unfinished_transfers() const;

    const int rank_;
    const bool asynchronous_;
    const StepProgress& progress_;
    Lanes& lanes_;
};

}  // namespace vocabpipe
