// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/schedule.hpp"

namespace vocabpipe::tool {

struct TimeGridOptions {
    int width = 120;      ///< characters per line, at least 40
    bool colour = false;  ///< ANSI background colours by kind of pass
    /// Unit of the axis, whose marks are 1, 2, 5, 10, ... units apart.
    int64_t ticks_per_unit = 1;
    std::function<std::string(int64_t)> time_text;  ///< prints a number of ticks
};

/// One row per rank, time runs right, every pass is a box with its name: `F3--`, `0B2---`; dots are
/// idle time. The shortest transformer pass is as wide as its name and a dash; narrower, with names
/// cut down to the letter, if that makes the step fit into the width. What still does not fit is
/// left out, and a last line says so.
[[nodiscard]] std::string time_grid(const Schedule& schedule, const PassTimes& times,
                                    const TimeGridOptions& options);

}  // namespace vocabpipe::tool
