// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/explain.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <string>

namespace vocabpipe::imported {
struct WhatIf;
}

namespace vocabpipe::tool {

/// What `explain` says of a recorded run, to look at.
struct ExplainPage {
    const RecordedRun& run;
    const TimeText& time;
    const imported::WhatIf* found = nullptr;  ///< null: the run was not replayed
    std::string no_replay;                    ///< why not

    /// A page that loads nothing: the passes, where the time of every rank went, the critical path,
    /// how long the step could have been, and other schedules.
    [[nodiscard]] std::string html() const;
};

}  // namespace vocabpipe::tool
