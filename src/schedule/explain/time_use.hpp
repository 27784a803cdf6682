// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// Where one rank's time went, by its compute lane. `passes` and `waits` add up to the makespan.
struct RankTimeUse {
    /// Time under one name.
    struct Share {
        std::string name;  ///< a pass without stage and microbatch: "F", "optimizer_step"
        int64_t ns = 0;
    };
    std::vector<Share> passes;  ///< largest first
    /// Before a pass, by what it waited for: "forward messages", "collectives", "the end".
    std::vector<Share> waits;
    int64_t busy_ns = 0;  ///< time of passes by the clock
    int64_t cpu_ns = 0;   ///< CPU time of passes
};

/// Time use of every rank.
[[nodiscard]] std::vector<RankTimeUse> time_use(const RecordedRun& run);
/// The critical path by kinds of passes and by lanes, largest first; "between them" is time in
/// which the next action could have begun.
[[nodiscard]] std::vector<RankTimeUse::Share> critical_path_use(const RecordedRun& run);

}  // namespace vocabpipe
