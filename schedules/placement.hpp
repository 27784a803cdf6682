// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <functional>
#include <vector>

// What generators share: where stages live, and the frame around per-rank lists.

namespace vocabpipe {

/// Rank of every stage, v stages per rank (schedules reference, section 2).
[[nodiscard]] std::vector<int> rank_of_stage(Placement placement, int ranks, int chunks);

/// A schedule of transformer passes alone: shard maps of 0 rows, list of rank r from `list_of(r)`.
[[nodiscard]] Schedule transformer_schedule(const ScheduleOptions& options, Placement placement,
                                            int chunks,
                                            const std::function<std::vector<Pass>(int)>& list_of);

/// Rules that need some number of microbatches are run for that many, and what they emit for
/// microbatches >= `kept` is dropped: what is left stays valid, because no pass needs a pass of
/// another microbatch.
[[nodiscard]] std::vector<Pass> drop_microbatches(std::vector<Pass> list, int kept);

}  // namespace vocabpipe
