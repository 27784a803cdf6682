// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>

namespace vocabpipe {

struct InsertOptions {
    VocabMode mode = VocabMode::one_barrier;
    int64_t vocab_size = 1;
    PassCosts costs;
};

/// Adds E, S, T and G to a schedule of transformer passes (any placement, B or I and W, any order;
/// shard maps of 0 rows), for every vocabulary mode. Throws ScheduleError if the base is invalid.
[[nodiscard]] Schedule insert_vocabulary(const Schedule& base, const InsertOptions& options);

}  // namespace vocabpipe
