// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <functional>
#include <vector>

namespace vocabpipe {

/// A schedule with stage s on rank s and the shard maps and barriers of the vocabulary mode. The
/// list of rank r is `list_of(r)`, or that of evaluation_list() if options.forward_only.
[[nodiscard]] Schedule straight_schedule(const ScheduleOptions& options,
                                         const std::function<std::vector<Pass>(int)>& list_of);

/// E, F and S of one rank, each as early as its input allows; the same in every family.
[[nodiscard]] std::vector<Pass> evaluation_list(const ScheduleOptions& options, int rank);

}  // namespace vocabpipe
