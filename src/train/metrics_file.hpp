// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace vocabpipe {

/// One line of the metrics file; keys are the member names.
struct StepMetrics {
    int64_t step = 0;
    double loss = 0;
    double grad_norm = 0;
    double lr = 0;
    double tokens_per_second = 0;
    double step_seconds = 0;
    bool updated = true;
};

/// What an evaluation adds, as a line of its own; none: not evaluated.
struct EvaluationMetrics {
    int64_t step = 0;
    std::optional<double> eval_loss, eval_ppl;  ///< nats; e^eval_loss
    std::optional<double> choice_accuracy;      ///< from 0 to 1
    double eval_seconds = 0;
};

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
    void write(const std::string& line);
    [[noreturn]] void fail(const char* doing);
    void keep_through(int64_t last_step);
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
    int64_t whole_bytes_ = 0;
};

}  // namespace vocabpipe
