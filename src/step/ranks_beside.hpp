// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/rank_placement.hpp"

#include <span>
#include <vector>

namespace vocabpipe {

/// The ranks on the device of `rank`, whose memory they share (on hosts: on the host), that one
/// included. describe_devices() has named the devices.
[[nodiscard]] std::vector<int> ranks_beside(std::span<const RankPlacement> placements, int rank);

}  // namespace vocabpipe
