// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <string>

namespace vocabpipe {

/// The source of the order of a step's passes.
struct OrderSource {
    std::string name = "1f1b";  ///< family; default: every paper compares with it
    /// Existing passes, for example from a file, instead of the family's rule. Not owned.
    const Schedule* passes = nullptr;
    bool recompute = false;  ///< adds an R before every backward that has none
};

/// Stages, shard maps and barriers of the schedule that make_order() returns: all that costs and
/// sizes of the passes depend on. Throws as make_order() does for the options.
[[nodiscard]] Schedule placement_of(const OrderSource& source, const ScheduleOptions& options);

/// The result of make_schedule(), or of finish_schedule() for existing passes. With `recompute` the
/// order is made for backwards that last longer by their R (ScheduleOptions::costs holds R and
/// backward separately). Throws as these do.
[[nodiscard]] Schedule make_order(const OrderSource& source, const ScheduleOptions& options);

}  // namespace vocabpipe
