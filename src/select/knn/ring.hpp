// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace vocabpipe {

/// What is in flight at once.
inline constexpr uint64_t kRingPieceBytes = uint64_t{4} << 20;

/// Every rank's bytes go to the rank `distance` further on, in place: `block` then is that of the
/// rank `distance` before. All blocks have one size. Collective.
void shift_around_ring(Communicator& world, int distance, std::span<std::byte> block);

}  // namespace vocabpipe
