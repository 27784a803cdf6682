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

/// When a run ends before --train-iters. One rank may know what the others do not: what it asks for
/// travels in the step's report, so that all end after the same step.
class RunLimits {
public:
    /// The duration counts from here, on rank 0 only. `clock`: seconds that go by.
    RunLimits(const TrainOptions& options, int rank,
              std::function<double()> clock = steady_seconds);

    /// What this rank asks for in the step that begins, to be added up over the ranks: once per
    /// step. `failed`: it cannot go on.
    [[nodiscard]] double request(bool failed);
    /// The signal that told this process to end; 0: none.
    [[nodiscard]] int own_signal() const { return options_.terminated ? options_.terminated() : 0; }
    /// The same of a run that ends: of a rank that another told SIGTERM, as a launcher sends.
    [[nodiscard]] int ending_signal() const { return own_signal() != 0 ? own_signal() : SIGTERM; }
    /// After each step, of which the next one may take as long.
    void step_took(double seconds) { last_step_ = seconds; }
    /// Of the step's sum over the ranks; equal on all.
    [[nodiscard]] StopReason reason(int64_t step, double requests) const;
    /// The same: --save-interval-in-mins have gone by since the last save.
    [[nodiscard]] bool save_due(double requests) const;
    /// The step was saved.
    void saved() { saved_ = clock_(); }

private:
    [[nodiscard]] static double steady_seconds();
    [[nodiscard]] bool time_is_up();
    [[nodiscard]] bool save_is_due();

    const TrainOptions& options_;
    bool keeps_time_;
    std::function<double()> clock_;
    double start_;
    double saved_;          ///< when, or the start
    double last_step_ = 0;  ///< seconds
};

/// "SIGINT"; ExitCode of 128 + its number.
[[nodiscard]] std::string name_of_signal(int signal);
[[nodiscard]] ExitCode exit_code_of(int signal);

/// What the log says.
[[nodiscard]] const char* to_string(StopReason reason);

}  // namespace vocabpipe
