// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/measured_run.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::imported {

/// How far the clock of a rank is from that of rank 0.
struct ClockOffset {
    int64_t add_ns = 0;  ///< to its times, so that they are on the clock of rank 0
    /// add_ns may be wrong by this much; -1: messages bound it from one side at most.
    int64_t uncertainty_ns = 0;
};

/// [rank] A message cannot have arrived before it was sent. So every message from rank a to rank b
/// bounds how far b's clock is ahead of a's from one side, and one from b to a bounds it from the
/// other. The estimate is the middle of the bounds that all messages leave, which is right if the
/// fastest message takes as long in both directions, and wrong by half of their distance at most.
/// Where a moment was not recorded, the end of the pass that made the message stands for the
/// begin of sending, and the end of the pass that used it for the arrival. Ranks of one host whose
/// bounds allow it have one clock. Estimates of ranks that exchange no message add up along those
/// that do, by way of the most certain ones.
[[nodiscard]] std::vector<ClockOffset> estimate_clocks(const MeasuredRun& run);

/// Puts all times on the clock of rank 0, the first begin of the run at 0. A pass then begins no
/// earlier than its input was sent, which is what its wait is where the arrival was not recorded.
void correct_clocks(MeasuredRun& run);

}  // namespace vocabpipe::imported
