// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Information that a list of passes does not contain.
struct UserScheduleOptions {
    /// Rows of the vocabulary, split evenly over the ranks that run E and G (S and T). Only for
    /// lists with vocabulary passes of their own; insert_vocabulary() takes its own number.
    int64_t vocab_size = 0;
    /// How S and T are tied together, if the lists have them; it cannot be inferred.
    Barriers barriers = Barriers::in_line;
};

/// Makes a schedule from your own lists, which can do all that built-in ones can: `passes[rank]`
/// lists what the rank runs, in order. Everything else is inferred: a stage lives on the rank that
/// runs it, stages and microbatches count up to the highest number, and lower() adds communication,
/// buffers and their lifetimes.
///
///     Schedule schedule = user_schedule({{{Op::F, 0, 0}, {Op::B, 0, 0}},    // rank 0
///                                        {{Op::F, 1, 0}, {Op::B, 1, 0}}});  // rank 1
///
/// (examples/custom_schedule.cpp is a complete program.)
///
/// Lists of transformer passes only get shard maps of 0 rows; insert_vocabulary() then places E, S,
/// T and G for a vocabulary mode. Throws ScheduleError naming rank, position and pass if the
/// schedule cannot run, UsageError if options and lists do not fit.
[[nodiscard]] Schedule user_schedule(std::vector<std::vector<Pass>> passes,
                                     const UserScheduleOptions& options = {});

}  // namespace vocabpipe
