// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/error.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <span>

namespace vocabpipe {

/// Throws UsageError unless all runs can share one time axis.
inline void require_same_unit(std::span<const RecordedRun> runs) {
    for (const RecordedRun& run : runs) {
        if (run.ticks_per_unit == runs.front().ticks_per_unit) continue;
        throw UsageError(run.title + " and " + runs.front().title +
                         ": one is in nanoseconds, the other in units of its costs; simulate with "
                         "costs in nanoseconds or write two files");
    }
}

}  // namespace vocabpipe
