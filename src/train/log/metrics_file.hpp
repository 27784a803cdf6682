// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/append_file.hpp"
#include "src/train/log/step_metrics.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// JSON lines, one object per step or evaluation, flushed line by line so that a run can be
/// watched. A line that cannot be written whole (disk full) is taken back and reported as
/// OutputFileError.
class MetricsFile {
public:
    /// Goes on behind the lines of the steps up to `last_step` that a file of that name has, and
    /// drops those of later steps and a line that was cut; 0: begins anew.
    explicit MetricsFile(std::string path, int64_t last_step = 0);
    void add(const StepMetrics& metrics);
    void add(const EvaluationMetrics& metrics);
    /// Reports what only closing shows.
    void close();

private:
    void keep_through(int64_t last_step);
    std::string path_;
    std::optional<AppendFile> file_;
};

}  // namespace vocabpipe
