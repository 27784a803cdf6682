// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <vector>

namespace vocabpipe {

/// What order_microbatches() may do.
struct MicrobatchOrderOptions {
    /// Orders that are timed. 32 microbatches on 8 ranks take 0.02 ms each.
    int tries = 10'000;
};

/// The lengths of a step's microbatches in an order in which the step is short: where long
/// microbatches begin and end a step, every rank waits for them. `lengths` has one element per
/// microbatch of the schedule, each an index as in MicrobatchLengths::of_microbatch; of `costs`,
/// lengths.of_microbatch is not read. Begins with several regular orders, exchanges microbatches as
/// long as that makes the step shorter under time_passes(), and takes the best result.
///
/// The result depends on the multiset of the lengths, not on their order, and is the same on every
/// machine. UsageError if the number of lengths is not that of the schedule's microbatches.
[[nodiscard]] std::vector<int> order_microbatches(const Schedule& schedule, const PassCosts& costs,
                                                  std::vector<int> lengths,
                                                  const MicrobatchOrderOptions& options = {});

}  // namespace vocabpipe
