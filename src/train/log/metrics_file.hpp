// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/append_file.hpp"
#include "src/train/log/step_metrics.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// JSON lines, one object per step or evaluation, flushed line by line so that a run can be
/// watched. A line that cannot be written whole (disk full) is removed again, with an
/// OutputFileError.
class MetricsFile {
public:
    /// Appends to an existing file after its lines of steps up to `last_step`, and drops later and
    /// incomplete lines; 0: begins anew.
    explicit MetricsFile(std::string path, int64_t last_step = 0);
    void add(const StepMetrics& metrics);
    void add(const EvaluationMetrics& metrics);
    /// Closes the file; throws if that fails.
    void close();

private:
    void keep_through(int64_t last_step);
    std::string path_;
    std::optional<AppendFile> file_;
};

}  // namespace vocabpipe
