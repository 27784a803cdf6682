// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/log/step_log.hpp"
#include "src/train/options/train_options.hpp"

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>

namespace vocabpipe {

/// What a run tells between its steps: rank 0 does, the other ranks' do nothing. A file that cannot
/// be written ends the run, but not in the middle of a step: the other ranks learn of failed() with
/// the next one, and all end alike.
class RunLog {
public:
    RunLog(const TrainOptions& options, int rank) : options_(options), rank_(rank) {}

    /// Opens the files, which lose what they have of `first_step` and later ones. Throws
    /// OutputFileError.
    void open(int64_t first_step);
    /// As StepLog::add().
    void add(const StepMetrics& metrics, bool ends);
    void add(const EvaluationMetrics& metrics);
    /// A line of its own.
    void print_line(const std::string& line);
    /// Standard output or a file could not be written. Where it is a file, nothing is from then on.
    [[nodiscard]] bool failed() const { return failure_ != nullptr; }
    /// Throws what failed.
    void close();

private:
    void write(const std::function<void()>& work);

    const TrainOptions& options_;
    int rank_;
    std::optional<StepLog> log_;  ///< on rank 0
    bool file_failed_ = false;
    std::exception_ptr failure_;
};

}  // namespace vocabpipe
