// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <string>

namespace vocabpipe {

/// Where the order of a step's passes comes from.
struct OrderSource {
    std::string name = "1f1b";  ///< a family's; every paper compares with this one
    /// Passes that exist already, as from a file, in place of the family's rule. Not owned.
    const Schedule* passes = nullptr;
    bool recompute = false;  ///< adds an R before every backward that has none
};

/// Stages, shard maps and barriers of what make_order() returns: all that costs and sizes of the
/// passes depend on. Throws as make_order() does for the options.
[[nodiscard]] Schedule placement_of(const OrderSource& source, const ScheduleOptions& options);

/// What make_schedule(), or finish_schedule() for passes that exist, make of the options; with
/// `recompute` for backwards that last longer by their R (ScheduleOptions::costs has both alone).
/// Throws as these do.
[[nodiscard]] Schedule make_order(const OrderSource& source, const ScheduleOptions& options);

}  // namespace vocabpipe
