// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <span>
#include <string>

namespace vocabpipe {

/// One self-contained HTML page with the runs stacked on one time axis (docs/timelines.md): lanes
/// and memory per rank, zoom, and what every pass waited for. It loads nothing and runs in any
/// browser. Throws OutputFileError; UsageError if some runs are in nanoseconds and some are not.
void write_html_timeline(const std::string& path, std::span<const RecordedRun> runs,
                         const std::string& title);

}  // namespace vocabpipe
