// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace vocabpipe {

struct FillOptions {
    std::vector<int> chunk_limit;  ///< [rank] activations that may be alive, in chunks
    int exp_logits_limit = 2;      ///< exp_logits of S that may wait for their T on one rank
    /// A filler that is longer than the hole runs if this share of it fits (in percent): 0 always
    /// runs one, 100 never delays the pass that is waited for.
    int overrun_percent = 50;
    /// Later passes of the list may run in a hole that they fit into.
    bool look_ahead = true;
};

/// The same schedule with its fillers placed anew. Nothing but the optimizer waits for W, for G
/// and, with one barrier, for T: they leave the lists and come back where a rank would idle, where
/// their memory is needed, or at the end. Runs the ranks in simulated time, every decision with
/// what is known at that moment. None if that gets stuck, which a limit below the schedule's own
/// peak may cause.
[[nodiscard]] std::optional<Schedule> fill_idle(const Schedule& schedule, const PassCosts& costs,
                                                const FillOptions& options);

}  // namespace vocabpipe
