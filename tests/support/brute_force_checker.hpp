// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <random>
#include <string>

namespace vocabpipe::testing {

/// Second opinion on schedules, for tests. Written from the dependency rules alone, as plainly and
/// as slowly as possible, without any code of the library beyond its types: it must not share a
/// mistake with find_violation().
///
/// Empty for a valid schedule, otherwise what is wrong.
[[nodiscard]] std::string brute_force_fault(const Schedule& schedule);

/// A valid schedule that nobody designed: placement, shard maps and barriers as in `frame`, lists
/// from letting a random rank run a random pass whose inputs are there, until all have run.
/// Backwards are B, or I and W, by the toss of a coin, and in one schedule of three some have an R;
/// `forward_only` leaves them out.
[[nodiscard]] Schedule random_valid_schedule(Schedule frame, bool forward_only,
                                             std::mt19937& random);

}  // namespace vocabpipe::testing
