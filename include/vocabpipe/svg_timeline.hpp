// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <span>
#include <string>

namespace vocabpipe {

/// What a picture shows besides the passes.
struct SvgTimelineOptions {
    std::string title{};         ///< above all
    bool critical_path = false;  ///< a line along what made each step as long as it is
};

/// A picture for documents: the passes of the runs, one row per rank with the number of the
/// microbatch, above each other on one time axis; makespan and bubble of each run, its costs and a
/// legend. It is readable on white and dark pages. For a look at details, write_html_timeline().
/// The same runs give the same bytes. Throws OutputFileError; UsageError if some runs are in
/// nanoseconds and some are not.
void write_svg_timeline(const std::string& path, std::span<const RecordedRun> runs,
                        const SvgTimelineOptions& options = {});

}  // namespace vocabpipe
