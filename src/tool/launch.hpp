// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "src/tool/command.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Where the ranks of a program come from; the comments name its flags.
struct Launch {
    std::string transport = "mpi";  // --transport
    std::optional<int> ranks;       // --ranks, with --transport threads
    std::string on_host;            // --transport-on-host, with --transport mpi; "": the default
    double timeout_seconds = 600;   // --distributed-timeout-seconds; Megatron's is 10 minutes
    std::optional<double> sigterm_grace_seconds;  // --sigterm-grace-seconds; none: the launcher's
    int exit_signal = 0;                          // --exit-signal; 0: no other

    /// What all ranks must have alike beside these flags: "--seed 1". Empty: nothing.
    std::vector<std::string> compared;
    /// Which files this rank sees: "--load run, which is there". Compared as well.
    std::vector<std::string> seen;

    [[nodiscard]] bool ranks_are_threads() const { return transport == "threads"; }
};

/// The rows of the table of flags that say where ranks come from.
[[nodiscard]] FlagGroup launch_flags(Launch& launch);
/// Checks these flags. Throws UsageError.
void check_launch(const Launch& launch);
/// Checks these flags and those of the device, and completes `options` with what follows from
/// them. Throws UsageError.
void check_launch(Launch& launch, TrainOptions& options);

/// What an exception says, with a remedy where it is a thread that the system refused.
[[nodiscard]] std::string describe(const std::exception& error);

/// Reports an error from before there is a world and returns its exit code. It is the same on every
/// rank that was started with the same flags, so the first prints it; mpirun ends everything
/// at the first rank that fails: those that do not print leave time to the one that does.
int report_before_launch(const char* program, const std::string& what, ExitCode code);

/// Writes out what standard output still holds and returns `code`, or reports that it could not be
/// written (a full disk, a closed pipe) and returns ExitCode::failed: no result is lost silently.
int finish_output(const char* program, ExitCode code);

/// The command, whose ranks compare all of its flags before they begin to work (Flag::ranks).
/// `launch` is kept by what the command's function keeps.
[[nodiscard]] Command comparing_flags(Command command, Launch& launch);

/// Runs `body` on every rank, when all have found that they run the same binary with the same
/// flags, and returns the exit code. Errors are one line on stderr, "PROGRAM: error: ...", and end
/// all ranks: those that all agreed on, from rank 0; others from the rank that failed, which then
/// has the launcher end the rest.
int run_ranks(const char* program, const Launch& launch,
              const std::function<void(Communicator&)>& body);

}  // namespace vocabpipe::tool
