// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "src/tool/support/command.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// How the ranks of a program are started; the comments name its flags.
struct Launch {
    std::string transport = "mpi";  // --transport
    std::optional<int> ranks;       // --ranks, with --transport threads
    std::string on_host;            // --transport-on-host, with --transport mpi; "": the default
    double timeout_seconds = 600;   // --distributed-timeout-seconds; Megatron's is 10 minutes
    std::optional<double> sigterm_grace_seconds;  // --sigterm-grace-seconds; none: the launcher's
    int exit_signal = 0;                          // --exit-signal; 0: no other

    /// Further lines that all ranks must have alike besides these flags: "--seed 1". May be empty.
    std::vector<std::string> compared;
    /// Files that this rank sees: "--load run, which is there". Also compared.
    std::vector<std::string> seen;

    [[nodiscard]] bool ranks_are_threads() const { return transport == "threads"; }
};

/// The flags of Launch.
[[nodiscard]] FlagGroup launch_flags(Launch& launch);
/// Checks these flags. UsageError.
void check_launch(const Launch& launch);
/// Checks these flags and those of the device, and completes the `options` that depend on them.
/// UsageError.
void check_launch(Launch& launch, TrainOptions& options);

/// The message of an exception, with a remedy if the system refused to start a thread.
[[nodiscard]] std::string describe(const std::exception& error);

/// Reports an error from before the world exists and returns its exit code. Ranks started with the
/// same flags have the same error, so only the first prints it. mpirun ends all ranks when the
/// first one fails, so the others give that one time to print.
int report_before_launch(const char* program, const std::string& what, ExitCode code);

/// Flushes standard output and returns `code`. If that fails (a full disk, a closed pipe), reports
/// it and returns ExitCode::failed, so that no result is lost silently.
int finish_output(const char* program, ExitCode code);

/// The command, changed so that its ranks compare all of its flags before they begin to work
/// (Flag::ranks). `launch` must live as long as the command's function.
[[nodiscard]] Command comparing_flags(Command command, Launch& launch);

/// Runs `body` on every rank after a check that all run the same binary with the same flags, and
/// returns the exit code. Errors are one line on stderr, "PROGRAM: error: ...", and end all ranks:
/// errors that all agreed on are printed by rank 0, others by the rank that failed, whose launcher
/// then ends the rest.
int run_ranks(const char* program, const Launch& launch,
              const std::function<void(Communicator&)>& body);

}  // namespace vocabpipe::tool
