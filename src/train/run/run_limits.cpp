// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/run_limits.hpp"

#include <chrono>
#include <cstring>
#include <utility>

namespace vocabpipe {

namespace {

// The sum over the ranks shows the most urgent request: each value exceeds the sum of all smaller
// ones for any number of ranks, and doubles add them exactly.
constexpr double kSaveDue = 0.5;  // only from rank 0
constexpr double kRequested = 1;
constexpr double kDuration = 1 << 20;
constexpr double kTerminated = static_cast<double>(int64_t{1} << 40);

}  // namespace

RunLimits::RunLimits(const TrainOptions& options, int rank, std::function<double()> clock)
    : options_(options),
      keeps_time_(rank == 0),
      clock_(std::move(clock)),
      start_(clock_()),
      saved_(start_) {}

double RunLimits::steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

bool RunLimits::time_is_up() {
    // Assumes that this step takes as long as the last one.
    const double end = clock_() + last_step_;
    return keeps_time_ && options_.exit_duration_minutes &&
           end - start_ >= 60 * *options_.exit_duration_minutes;
}

bool RunLimits::save_is_due() {
    return keeps_time_ && options_.save_interval_minutes > 0 &&
           clock_() + last_step_ - saved_ >= 60 * options_.save_interval_minutes;
}

double RunLimits::request(bool failed) {
    const bool up = time_is_up();
    const bool stop = options_.stop_requested && options_.stop_requested();
    if (own_signal() != 0) return kTerminated;
    if (up) return kDuration;
    if (failed || stop) return kRequested;
    return save_is_due() ? kSaveDue : 0;
}

StopReason RunLimits::reason(int64_t step, double requests) const {
    if (requests >= kTerminated) return StopReason::terminated;
    if (requests >= kDuration) return StopReason::duration;
    if (requests >= kRequested) return StopReason::requested;
    if (options_.exit_interval > 0 && step % options_.exit_interval == 0 &&
        step < options_.train_iters) {
        return StopReason::interval;
    }
    return StopReason::none;
}

bool RunLimits::save_due(double requests) const {
    return requests == kSaveDue;
}

std::string name_of_signal(int signal) {
    const char* const name = ::sigabbrev_np(signal);
    return name == nullptr ? "signal " + std::to_string(signal) : "SIG" + std::string(name);
}

ExitCode exit_code_of(int signal) {
    return static_cast<ExitCode>(128 + signal);
}

const char* to_string(StopReason reason) {
    switch (reason) {
        case StopReason::none:
            return "";
        case StopReason::requested:
            return "stop requested";
        case StopReason::duration:
            return "--exit-duration-in-mins reached";
        case StopReason::interval:
            return "--exit-interval";
        case StopReason::terminated:
            return "signal received";
    }
    return "";
}

}  // namespace vocabpipe
