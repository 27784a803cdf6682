// SPDX-License-Identifier: Apache-2.0
// What ranks compare before they run: one number for the programs of all of them.
#pragma once

#include "src/schedule/lower/dataflow.hpp"
#include "vocabpipe/lowered.hpp"

#include <cstdint>

namespace vocabpipe::lowering {

/// Of the programs of all ranks of the world, in their order, none of which is made for it.
/// `world`: as project() leaves it, groups and reductions numbered as in `flow`.
[[nodiscard]] uint64_t hash_of(const Lowered& world, const Dataflow& flow);

}  // namespace vocabpipe::lowering
