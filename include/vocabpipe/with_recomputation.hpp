// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

namespace vocabpipe {

/// Whether there is an R anywhere.
[[nodiscard]] bool has_recomputation(const Schedule& schedule);

/// The schedule with an R directly before every B and I that has none yet; before the first member
/// of an overlapped pair. Nothing else moves, and a schedule without backwards stays as it is.
[[nodiscard]] Schedule with_recomputation(Schedule schedule);

/// Costs for a generator or a search whose result goes through with_recomputation(): B and I last
/// longer by the R before them.
[[nodiscard]] PassCosts with_recomputation(PassCosts costs);

}  // namespace vocabpipe
