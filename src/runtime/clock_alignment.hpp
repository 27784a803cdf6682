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
inline constexpr size_t kClockRounds = 16;  ///< enough to contain an undisturbed round trip
using ClockReadings = std::array<BarrierTimes, kClockRounds>;

/// By how much each rank's clock is ahead of rank 0's. No rank leaves a barrier before all have
/// entered it, so in every round a rank is ahead by at least its enter - rank 0's leave, and at
/// most its leave - rank 0's enter. The result is the middle of the intersection over all rounds
/// and all ranks of a host (equal `host` values; they share a clock). Its error is at most half of
/// the shortest round trip. 0 on the host of rank 0.
[[nodiscard]] std::vector<int64_t> clocks_ahead(std::span<const uint64_t> host,
                                                std::span<const ClockReadings> readings);

/// A number for this boot of this host; ranks with equal numbers share a clock.
[[nodiscard]] uint64_t this_host();

/// Measures it for the ranks of `communicator`; without rounds if all ranks share a host.
/// Collective.
[[nodiscard]] std::vector<int64_t> clocks_ahead_of_rank_0(
    Communicator& communicator, uint64_t host = this_host(),
    const std::function<int64_t()>& clock = {});

}  // namespace vocabpipe
