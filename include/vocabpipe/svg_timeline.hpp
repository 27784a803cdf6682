// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <span>
#include <string>

namespace vocabpipe {

/// A picture for documents: the passes of the runs, one row per rank with the number of the
/// microbatch, above each other on one time axis; makespan and bubble of each run, its costs, a
/// legend, and the title above all, if there is one. It is readable on white and dark pages. For a
/// look at details, write_html_timeline(). The same runs give the same bytes. Throws
/// OutputFileError; UsageError if some runs are in nanoseconds and some are not.
void write_svg_timeline(const std::string& path, std::span<const RecordedRun> runs,
                        const std::string& title = {});

}  // namespace vocabpipe
