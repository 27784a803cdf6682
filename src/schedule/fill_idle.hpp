// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace vocabpipe {

struct FillOptions {
    std::vector<int> chunk_limit;  ///< [rank] most activations alive, in chunks
    int exp_logits_limit = 2;      ///< most exp_logits of S that wait for their T on one rank
    /// A filler longer than the hole runs if this share of it fits, in percent: 0 always runs one,
    /// 100 never delays the next pass.
    int overrun_percent = 50;
    /// Whether later passes of the list may run in a hole that they fit into.
    bool look_ahead = true;
};

/// The same schedule with its fillers placed anew. Fillers are passes for which only the optimizer
/// waits: W, G and, with one barrier, T. They are taken out of the lists and inserted where a rank
/// would idle, where their memory is needed, or at the end. Runs the ranks in simulated time; every
/// decision uses only what is known at that moment. None if that gets stuck, which a limit below
/// the schedule's own peak may cause.
[[nodiscard]] std::optional<Schedule> fill_idle(const Schedule& schedule, const PassCosts& costs,
                                                const FillOptions& options);

}  // namespace vocabpipe
