// SPDX-License-Identifier: Apache-2.0
#include "schedules/placement.hpp"

#include <algorithm>

namespace vocabpipe {

std::vector<int> rank_of_stage(Placement placement, int ranks, int chunks) {
    std::vector<int> result;
    for (int stage = 0; stage < ranks * chunks; ++stage) {
        const int within = stage % ranks;
        const bool upward = placement == Placement::v_shape && stage / ranks % 2 == 1;
        result.push_back(upward ? ranks - 1 - within : within);
    }
    return result;
}

Schedule transformer_schedule(const ScheduleOptions& options, Placement placement, int chunks,
                              const std::function<std::vector<Pass>(int)>& list_of) {
    const auto no_rows = ShardMap::even(0, options.ranks);
    Schedule schedule{.ranks = options.ranks,
                      .stages = options.ranks * chunks,
                      .microbatches = options.microbatches,
                      .rank_of_stage = rank_of_stage(placement, options.ranks, chunks),
                      .input = no_rows,
                      .output = no_rows,
                      .barriers = Barriers::in_line,
                      .passes = {}};
    for (int rank = 0; rank < options.ranks; ++rank) schedule.passes.push_back(list_of(rank));
    return schedule;
}

std::vector<Pass> drop_microbatches(std::vector<Pass> list, int kept) {
    const auto dropped = [&](const Pass& pass) {
        return pass.microbatch >= static_cast<uint32_t>(kept);
    };
    for (size_t i = 0; i + 1 < list.size(); ++i) {
        // Half a pair is an ordinary pass.
        list[i].with_next = list[i].with_next && !dropped(list[i + 1]);
    }
    std::erase_if(list, dropped);
    return list;
}

}  // namespace vocabpipe
