// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace vocabpipe {

/// When one rank entered and left one barrier, by its own clock.
struct BarrierTimes {
    int64_t enter_ns = 0;
    int64_t leave_ns = 0;
};
inline constexpr size_t kClockRounds = 16;  ///< an undisturbed round trip is among so many
using ClockReadings = std::array<BarrierTimes, kClockRounds>;

/// By how much each rank's clock is ahead of rank 0's. Nobody leaves a barrier before everybody has
/// entered it, so every round says of a rank: ahead by at least its enter - rank 0's leave, and by
/// at most its leave - rank 0's enter. All rounds, and all ranks of one host (the same `host`
/// value; they share a clock), must hold together; the answer is the middle, wrong by at most half
/// of what is left: half of the shortest round trip. 0 on the host of rank 0.
[[nodiscard]] std::vector<int64_t> clocks_ahead(std::span<const uint64_t> host,
                                                std::span<const ClockReadings> readings);

/// This boot of this host; ranks of one clock have one such number.
[[nodiscard]] uint64_t this_host();

/// The same of the ranks of `communicator`. No round where all ranks share a host. Collective.
[[nodiscard]] std::vector<int64_t> clocks_ahead_of_rank_0(
    Communicator& communicator, uint64_t host = this_host(),
    const std::function<int64_t()>& clock = {});

}  // namespace vocabpipe
