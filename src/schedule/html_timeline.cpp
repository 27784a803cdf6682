// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/html_timeline.hpp"

#include "src/schedule/html/timeline_parts.hpp"
#include "src/schedule/same_unit.hpp"
#include "src/support/output_file.hpp"

namespace vocabpipe {

void write_html_timeline(const std::string& path, std::span<const RecordedRun> runs,
                         const std::string& title) {
    require_same_unit(runs);
    OutputFile file(path);
    const html::TimelineParts parts =
        html::timeline_parts(title, runs.empty() ? 0 : runs.front().ticks_per_unit);
    file.write(parts.before);
    for (const RecordedRun& run : runs) file.write(html::run_element(run));
    file.write(parts.after);
    file.publish();
}

}  // namespace vocabpipe
