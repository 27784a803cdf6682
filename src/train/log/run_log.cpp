// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/run_log.hpp"

#include "vocabpipe/error.hpp"

#include <cstdio>

namespace vocabpipe {

void RunLog::open(int64_t first_step) {
    if (rank_ == 0) log_.emplace(options_, first_step);
}

void RunLog::add(const StepMetrics& metrics, bool ends) {
    if (rank_ == 0 && !failed() && std::ferror(stdout) != 0) {
        failure_ = std::make_exception_ptr(
            OutputFileError("standard output: cannot write; free some space, or keep the reader of "
                            "the pipe open until the run ends"));
    }
    // The files get every step that runs, also those until all ranks know of a failure.
    write([&] { log_->add(metrics, ends); });
}

void RunLog::add(const EvaluationMetrics& metrics) {
    write([&] { log_->add(metrics); });
}

void RunLog::print_line(const std::string& line) {
    if (rank_ != 0) return;
    if (log_) log_->clear_bar();
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

void RunLog::close() {
    if (log_ && !file_failed_) write([&] { log_->close(); });
    if (failure_) std::rethrow_exception(failure_);
}

void RunLog::write(const std::function<void()>& work) {
    if (!log_ || file_failed_) return;
    try {
        work();
    } catch (const OutputFileError&) {
        file_failed_ = true;
        failure_ = std::current_exception();
    }
}

}  // namespace vocabpipe
