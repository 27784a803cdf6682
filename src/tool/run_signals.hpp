// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe {

/// SIGUSR1, SIGUSR2 and `exit_signal` (0: no other), and SIGTERM, SIGINT (a second one ends the
/// process at once), SIGHUP and SIGXCPU are noted, for the step that runs to be finished: by a
/// thread that waits for them, once per process, before any other thread starts. SIGINT and SIGHUP
/// stay ignored where they were. They come to the process, so their flags are the program's, not
/// the library's. Output into a closed pipe becomes an error.
void install_run_signals(int exit_signal = 0);
[[nodiscard]] bool stop_requested();  ///< SIGUSR1, SIGUSR2, or the exit signal
/// As if SIGTERM had come: a launcher will send it. From any thread.
void announce_sigterm();
/// SIGTERM (of a launcher too that lost a rank), SIGINT, SIGHUP or SIGXCPU, the first that came; 0:
/// none.
[[nodiscard]] int ending_signal();
/// True if announce_sigterm() came first.
[[nodiscard]] bool ending_was_announced();
/// Since ending_signal(); 0 without one.
[[nodiscard]] double seconds_since_terminated();

}  // namespace vocabpipe
