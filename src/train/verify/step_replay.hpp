// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Runs the first microbatches of a step twice before the step itself, and compares the bits: what
/// a faulty processor, memory or link changes once. Products that are wrong in the same way each
/// time have the same bits.
class StepReplay {
public:
    /// `plan`: of `rank`, one without an optimizer. `rank` must outlive it.
    StepReplay(TrainedRank& rank, size_t plan) : rank_(rank), plan_(plan) {}

    /// Compares, of both runs, the stage inputs, outputs and gradients of every pass and message,
    /// and the gradient of every tensor; and what was sent with what has arrived. On devices with
    /// streams, which have not run an action when it is enqueued, only the gradients of tensors.
    /// Weights and moments do not change. `microbatches`: as many as the plan has. Throws
    /// AgreedError (ExitCode::wrong_values) naming step, rank and pass. Collective.
    void run(std::span<const Microbatch> microbatches, int64_t step);

private:
    /// What one rank saw in one run.
    struct Trace {
        std::vector<uint32_t> actions;    ///< [action] checksum of what it used and made
        std::vector<uint32_t> gradients;  ///< [parameter] checksum
    };
    [[nodiscard]] Trace trace(std::span<const Microbatch> microbatches);

    TrainedRank& rank_;
    size_t plan_;
};

}  // namespace vocabpipe
