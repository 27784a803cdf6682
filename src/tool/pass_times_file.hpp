// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/schedule_source.hpp"
#include "vocabpipe/plan.hpp"

#include <string>

namespace vocabpipe::tool {

/// Sets pass times of `step`, whose schedule is set, from a CSV file "rank,op,stage,ns"
/// (--pass-times; docs/profiles.md). Of a half of the backward that has no row: B = I + W, or I = W
/// = B / 2. `keep`: a pass without a row keeps its cost; else F and a backward of every stage must
/// be there, and other passes cost nothing. Throws InputFileError naming file, line, value and
/// remedy.
void set_pass_times(ScheduledStep& step, const std::string& path, bool keep);

/// The same file for plan: ranks and stages are those that it has rows of, and F and a backward of
/// every stage must be there.
[[nodiscard]] PlannedPassTimes read_planned_pass_times(const std::string& path);

}  // namespace vocabpipe::tool
