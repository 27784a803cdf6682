// SPDX-License-Identifier: Apache-2.0
#include "src/step/ranks_beside.hpp"

#include <cstddef>

namespace vocabpipe {

std::vector<int> ranks_beside(std::span<const RankPlacement> placements, int rank) {
    const RankPlacement& place = placements[static_cast<size_t>(rank)];
    std::vector<int> ranks;
    for (size_t other = 0; other < placements.size(); ++other) {
        const RankPlacement& one = placements[other];
        if (one.host == place.host && one.device == place.device) {
            ranks.push_back(static_cast<int>(other));
        }
    }
    return ranks;
}

}  // namespace vocabpipe
