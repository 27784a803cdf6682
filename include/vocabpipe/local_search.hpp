// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// What local_search() may do.
struct LocalSearchOptions {
    int64_t moves = 100'000;  ///< moves tried; about 300,000 a second for 200 passes
    int chunk_limit = 0;  ///< activations alive on a rank, in chunks; 0: the schedule's own peak
    uint64_t seed = 1;    ///< same seed, same result
    /// Called from time to time with the moves tried so far; may throw to end the search.
    std::function<void(int64_t done)> progress;
};

/// make_schedule() refuses more moves than this: five minutes for 200 passes, longer for more
/// passes.
inline constexpr int64_t kMostSearchMoves = 100'000'000;

/// Local search for a smaller makespan under `costs`: single passes move within their rank's list,
/// dependencies and memory limit kept, by simulated annealing. Rules made for equal stages and
/// F = I = W leave much to gain elsewhere (docs/schedules.md, "Less memory on the V placement").
/// The result is never longer and never keeps more exp_logits of S. Overlapped pairs stay as they
/// are and are timed apart.
[[nodiscard]] Schedule local_search(const Schedule& schedule, const PassCosts& costs,
                                    const LocalSearchOptions& options = {});

}  // namespace vocabpipe
