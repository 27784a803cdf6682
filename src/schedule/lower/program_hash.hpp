// SPDX-License-Identifier: Apache-2.0
// The number that ranks compare before they run, computed from the programs of all ranks.
#pragma once

#include "src/schedule/lower/dataflow.hpp"
#include "vocabpipe/lowered.hpp"

#include <cstdint>

namespace vocabpipe::lowering {

/// Hash of the programs of all ranks of the world, in order, without making these programs.
/// `world`: from project(), with groups and reductions numbered as in `flow`.
[[nodiscard]] uint64_t hash_of(const Lowered& world, const Dataflow& flow);

}  // namespace vocabpipe::lowering
