// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace vocabpipe {

/// Bytes in flight at once.
inline constexpr uint64_t kRingPieceBytes = uint64_t{4} << 20;

/// Sends every rank's bytes to the rank `distance` further on, in place: `block` then holds that of
/// the rank `distance` before. All blocks have one size. Collective.
void shift_around_ring(Communicator& world, int distance, std::span<std::byte> block);

}  // namespace vocabpipe
