// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/log/step_metrics.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

/// Position of a run.
struct Progress {
    int64_t step = 0, last_step = 0;
    double loss = 0;
    double tokens_per_second = 0;
    double seconds_left = 0;
};

/// One line of at most `columns` characters; the least important parts are dropped first.
[[nodiscard]] std::string progress_text(const Progress& progress, int columns);

/// A line of standard output, on a terminal, that is rewritten in place a few times per second.
class ProgressBar {
public:
    /// `columns`: width of the terminal, which may change; 0: not a terminal, nothing is shown.
    ProgressBar(std::function<int()> columns, int64_t last_step);
    ~ProgressBar() { clear(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void show(const StepMetrics& metrics);
    /// Call before printing anything else.
    void clear();

private:
    std::function<int()> columns_;
    int64_t last_step_;
    double mean_seconds_ = 0;  ///< per step, recent ones
    bool shown_ = false;
    std::chrono::steady_clock::time_point shown_at_{};
};

}  // namespace vocabpipe
