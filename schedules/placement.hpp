// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <functional>
#include <vector>

// Shared by generators: the ranks of the stages, and the schedule around per-rank lists.

namespace vocabpipe {

/// Rank of every stage, v stages per rank (rule at Placement).
[[nodiscard]] std::vector<int> rank_of_stage(Placement placement, int ranks, int chunks);

/// A schedule of transformer passes only: shard maps of 0 rows, list of rank r from `list_of(r)`.
[[nodiscard]] Schedule transformer_schedule(const ScheduleOptions& options, Placement placement,
                                            int chunks,
                                            const std::function<std::vector<Pass>(int)>& list_of);

/// Drops the passes of microbatches >= `kept`, for rules that need more microbatches than there
/// are. The rest stays valid, because no pass needs a pass of another microbatch.
[[nodiscard]] std::vector<Pass> drop_microbatches(std::vector<Pass> list, int kept);

}  // namespace vocabpipe
