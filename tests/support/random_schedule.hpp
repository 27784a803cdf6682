// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <random>
#include <string>

namespace vocabpipe::testing {

struct RandomScheduleOptions {
    int most_ranks = 4;
    int most_stages = 6;
    int most_microbatches = 5;
    int64_t vocab_size = 13;
    /// One in this many has no backward (evaluation); 0: none.
    int one_in_forward_only = 8;
};

/// A valid schedule with everything at random: placement (several or no stages per rank, in any
/// order), shard maps (even, uneven, empty shards, whole), barriers, B or I and W, R or none, and
/// the order of every rank's list.
[[nodiscard]] Schedule random_schedule(std::mt19937& random, const RandomScheduleOptions& options);

/// The same with these sizes.
[[nodiscard]] Schedule random_schedule(std::mt19937& random, int ranks, int stages,
                                       int microbatches, int64_t vocab_size, bool forward_only);

/// Changes a schedule in one place: swaps, moves, drops, doubles or alters a pass, moves a stage or
/// a boundary between shards, changes the barriers or the number of microbatches. The result may be
/// valid or not. Returns what was done.
std::string mutate(Schedule& schedule, std::mt19937& random);

/// One rank per line, for messages.
[[nodiscard]] std::string describe(const Schedule& schedule);

}  // namespace vocabpipe::testing
