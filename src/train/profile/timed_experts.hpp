// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/profile/timed_overlap.hpp"

namespace vocabpipe {

/// time_overlap() of dispatch_gemm and gemm_combine, with the code that layers use
/// (src/model/blocks/moe/team_exchange.hpp). A member has enough tokens for `rows` rows of experts
/// on average; each token chooses `per_token` of the experts (`experts` per member), all equally
/// likely. Blocking: the whole dispatch, then one grouped product; or one product, then the whole
/// combine. `device` must be a host's.
[[nodiscard]] OverlapTiming time_experts(Communicator& world, Device& device, TileLink& link,
                                         const OverlapCase& c);

}  // namespace vocabpipe
