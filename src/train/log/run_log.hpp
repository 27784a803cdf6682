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

/// What a run logs between its steps; only rank 0 writes. If a file cannot be written, the run
/// ends, but not in the middle of a step: failed() tells the other ranks with the next step, and
/// all end alike.
class RunLog {
public:
    RunLog(const TrainOptions& options, int rank) : options_(options), rank_(rank) {}

    /// Opens the files, and drops what they have of `first_step` and later ones. Throws
    /// OutputFileError.
    void open(int64_t first_step);
    /// See StepLog::add().
    void add(const StepMetrics& metrics, bool ends);
    void add(const EvaluationMetrics& metrics);
    /// Prints a line of its own.
    void print_line(const std::string& line);
    /// Whether standard output or a file could not be written. After a failed file, none is
    /// written.
    [[nodiscard]] bool failed() const { return failure_ != nullptr; }
    /// Throws the failure, if any.
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
