// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <span>
#include <string>

namespace vocabpipe {

/// What the picture shows besides the passes.
struct SvgTimelineOptions {
    std::string title{};         ///< above all
    bool critical_path = false;  ///< draws a line along each step's critical path
};

/// A picture for documents: the passes of the runs with the numbers of their microbatches, one row
/// per rank, the runs above each other on one time axis; makespan and bubble of each run, its costs
/// and a legend. Readable on white and dark pages. To look at details use write_html_timeline().
/// The same runs give the same bytes. Throws UsageError if some runs are in nanoseconds and some
/// are not.
[[nodiscard]] std::string svg_timeline(std::span<const RecordedRun> runs,
                                       const SvgTimelineOptions& options = {});
/// Writes svg_timeline() to a file. Throws OutputFileError.
void write_svg_timeline(const std::string& path, std::span<const RecordedRun> runs,
                        const SvgTimelineOptions& options = {});

}  // namespace vocabpipe
