// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/log/event_file.hpp"
#include "src/train/log/metrics_file.hpp"
#include "src/train/log/progress_bar.hpp"
#include "src/train/options/train_options.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// " iteration 12/100 | lm loss 5.397012 | grad norm 1.973 | ...", without a line break: at most
/// 120 characters, unless numbers are larger than in any run today.
[[nodiscard]] std::string step_line(const StepMetrics& metrics, int64_t last_step);

/// Rank 0's log of every step: standard output (a line in Megatron's words, or a progress bar on a
/// terminal), the metrics file, TensorBoard.
class StepLog {
public:
    /// Opens the files, and drops what they have of `first_step` and later ones. Throws
    /// OutputFileError.
    StepLog(const TrainOptions& options, int64_t first_step);

    /// `metrics` without skipped_steps and elapsed_seconds, which are counted here. Throws
    /// OutputFileError when a file cannot be written; the line is printed all the same. `ends`:
    /// this is the last step.
    void add(StepMetrics metrics, bool ends);
    /// Writes it to the metrics file and TensorBoard; the caller prints the line.
    void add(const EvaluationMetrics& metrics);
    /// Call before printing anything else between steps.
    void clear_bar() { bar_.clear(); }
    void close();

private:
    /// Prints one line for all steps since the last line.
    void print(const StepMetrics& last);

    const TrainOptions& options_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    int64_t skipped_ = 0;
    /// The steps since the last line.
    struct Interval {
        int64_t steps = 0, trained = 0;  ///< trained: steps that changed weights
        double loss = 0;                 ///< sum over the latter
        double seconds = 0, tokens = 0;
    } interval_;
    ProgressBar bar_;
    std::optional<MetricsFile> metrics_;
    std::optional<EventFile> events_;
};

}  // namespace vocabpipe
