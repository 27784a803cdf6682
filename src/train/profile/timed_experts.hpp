// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/profile/timed_overlap.hpp"

namespace vocabpipe {

/// time_overlap() of dispatch_gemm and gemm_combine, with the code that layers use
/// (src/model/blocks/moe/team_exchange.hpp). A member has enough tokens for `rows` rows of experts
/// on average; each token chooses `per_token` of the experts (`experts` per member) at random. The
/// shares of experts rise evenly from the first to the last, with the deviation `load_std`, so that
/// members differ as much as they can with it; 0: all are equally likely. UsageError unless it is
/// below most_load_std(). Blocking: the whole dispatch, then one grouped product; or one product,
/// then the whole combine. `device` must be a host's.
[[nodiscard]] OverlapTiming time_experts(Communicator& world, Device& device, TileLink& link,
                                         const OverlapCase& c);

/// What random choices came to, for all members together.
struct ExpertLoads {
    double std = 0;      ///< of the experts' shares of all choices; their mean is 1 / experts
    double fullest = 1;  ///< most rows of a member / mean
};
[[nodiscard]] ExpertLoads expert_loads(int members, const OverlapCase& c);

/// The deviation of shares that rise evenly from 0.
[[nodiscard]] double most_load_std(int64_t experts);

}  // namespace vocabpipe
