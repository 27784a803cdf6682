// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace vocabpipe {

struct StageBytes;

/// Whether there is an R anywhere.
[[nodiscard]] bool has_recomputation(const Schedule& schedule);

/// The schedule with an R directly before every B and I that has none yet; before the first member
/// of an overlapped pair. Nothing else moves, and a schedule without backwards stays as it is.
[[nodiscard]] Schedule with_recomputation(Schedule schedule);

/// Costs for a generator or a search whose result is passed to with_recomputation(): B and I last
/// longer by the R before them.
[[nodiscard]] PassCosts with_recomputation(PassCosts costs);

/// The schedule that `order` makes for such costs, with R added.
[[nodiscard]] Schedule with_recomputation(const PassCosts& costs,
                                          const std::function<Schedule(const PassCosts&)>& order);

/// Divides the bytes that a stage saves into kept and recomputed ones; recomputed are none, all, or
/// `selective` bytes of them.
void divide_saved(StageBytes& bytes, Recompute recompute, int64_t selective);

/// The granularity of a run with schedule `name`: `asked` if given; else full if the schedule
/// brings its own R (`own`: a file with R), or none. Throws UsageError if none is asked for a file
/// with R.
[[nodiscard]] Recompute granularity(std::optional<Recompute> asked, bool own,
                                    const std::string& name);

}  // namespace vocabpipe
