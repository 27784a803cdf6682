// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/schedule/schedule_source.hpp"
#include "vocabpipe/plan.hpp"

#include <string>

namespace vocabpipe::tool {

/// Sets pass times of `step`, whose schedule is set, from a CSV file "rank,op,stage,ns"
/// (--pass-times; docs/profiles.md). Missing halves of a backward follow from B = I + W, or I = W =
/// B / 2. `keep`: a pass without a row keeps its cost; else F and a backward of every stage are
/// required, and other passes cost 0. InputFileError with file, line, value and remedy.
void set_pass_times(ScheduledStep& step, const std::string& path, bool keep);

/// Reads the same file for `vocabpipe plan`: its rows determine ranks and stages, and F and a
/// backward of every stage are required.
[[nodiscard]] PlannedPassTimes read_planned_pass_times(const std::string& path);

}  // namespace vocabpipe::tool
