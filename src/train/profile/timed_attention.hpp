// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/profile/timed_overlap.hpp"

namespace vocabpipe {

/// time_overlap() of gather_attention, with the code that layers use
/// (src/model/blocks/gathered_keys.hpp): causal attention of one sequence, which the members
/// share, of as many of `rows` tokens as divide into two segments for each, with `inner` columns of
/// q, of k and of v in heads of 64 (one head where 64 does not divide them). Blocking: all keys and
/// values, then attention.
[[nodiscard]] OverlapTiming time_attention(Communicator& world, Device& device, TileLink& link,
                                           const OverlapCase& c);

}  // namespace vocabpipe
