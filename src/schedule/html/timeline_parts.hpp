// SPDX-License-Identifier: Apache-2.0
// A timeline page in parts: what is around its runs, and the runs. write_html_timeline() writes
// them to a file; the page of a plan embeds them and puts them together when someone asks for one.
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <string>

namespace vocabpipe::html {

struct TimelineParts {
    std::string before;  ///< first part of the page, up to its runs
    std::string after;   ///< the rest
};
/// `ticks`: RecordedRun::ticks_per_unit of its runs. The page shows the titles of its runs in place
/// of a title of its own that differs.
[[nodiscard]] TimelineParts timeline_parts(const std::string& title, int ticks);

/// A run, as the element that belongs between the parts.
[[nodiscard]] std::string run_element(const RecordedRun& run);

}  // namespace vocabpipe::html
