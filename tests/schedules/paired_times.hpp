// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/schedule.hpp"

namespace vocabpipe::testing {

/// time_passes() as papers draw overlapped pairs: a pair is one node, which waits for the inputs of
/// both members and takes their sum, or the longer of the two if they overlap in full.
[[nodiscard]] PassTimes time_pairs(const Schedule& schedule, const PassCosts& costs,
                                   bool longest = false);

}  // namespace vocabpipe::testing
