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

/// Costs for a generator or a search whose result goes through with_recomputation(): B and I last
/// longer by the R before them.
[[nodiscard]] PassCosts with_recomputation(PassCosts costs);

/// The schedule that `order` makes for such costs, with its R.
[[nodiscard]] Schedule with_recomputation(const PassCosts& costs,
                                          const std::function<Schedule(const PassCosts&)>& order);

/// Divides what a stage saves in all into what is kept and what R makes again: nothing, everything,
/// or `selective` bytes of it.
void divide_saved(StageBytes& bytes, Recompute recompute, int64_t selective);

/// What a run recomputes whose schedule `name` does (`own`, a file with R) or does not have R of
/// its own: as asked; where nothing is, everything or nothing. Throws UsageError for none of a file
/// with R.
[[nodiscard]] Recompute granularity(std::optional<Recompute> asked, bool own,
                                    const std::string& name);

}  // namespace vocabpipe
