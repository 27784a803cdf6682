// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

/// Why a run ends after a step that is not its last.
enum class StopReason : uint8_t {
    none,
    requested,   ///< SIGUSR1, SIGUSR2, --exit-signal, or a file that cannot be written
    duration,    ///< --exit-duration-in-mins
    interval,    ///< --exit-interval
    terminated,  ///< SIGTERM, SIGINT, SIGHUP or SIGXCPU
};

/// Decides whether a run ends before --train-iters. A rank's request travels in the step's report,
/// so that all ranks end after the same step.
class RunLimits {
public:
    /// The duration counts from here, on rank 0 only. `clock`: elapsed seconds.
    RunLimits(const TrainOptions& options, int rank,
              std::function<double()> clock = steady_seconds);

    /// This rank's request for the step that begins, to be summed over the ranks; call once per
    /// step. `failed`: the rank cannot continue.
    [[nodiscard]] double request(bool failed);
    /// The signal that told this process to end; 0: none.
    [[nodiscard]] int own_signal() const { return options_.terminated ? options_.terminated() : 0; }
    /// The signal to end with: its own, or SIGTERM, as launchers send, if another rank got one.
    [[nodiscard]] int ending_signal() const { return own_signal() != 0 ? own_signal() : SIGTERM; }
    /// Call after each step; the next one is assumed to take as long.
    void step_took(double seconds) { last_step_ = seconds; }
    /// The reason to end, from the step's sum over the ranks; equal on all.
    [[nodiscard]] StopReason reason(int64_t step, double requests) const;
    /// Whether --save-interval-in-mins have passed since the last save; equal on all.
    [[nodiscard]] bool save_due(double requests) const;
    /// Call after a save.
    void saved() { saved_ = clock_(); }

private:
    [[nodiscard]] static double steady_seconds();
    [[nodiscard]] bool time_is_up();
    [[nodiscard]] bool save_is_due();

    const TrainOptions& options_;
    bool keeps_time_;
    std::function<double()> clock_;
    double start_;
    double saved_;          ///< time of the last save, or of the start
    double last_step_ = 0;  ///< seconds
};

/// "SIGINT"; and the ExitCode of 128 + its number.
[[nodiscard]] std::string name_of_signal(int signal);
[[nodiscard]] ExitCode exit_code_of(int signal);

/// Text for the log.
[[nodiscard]] const char* to_string(StopReason reason);

}  // namespace vocabpipe
