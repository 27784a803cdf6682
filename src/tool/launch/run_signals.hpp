// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe {

/// From this call on, SIGUSR1, SIGUSR2 and `exit_signal` (0: no other), SIGTERM, SIGINT (a second
/// one ends the process at once), SIGHUP and SIGXCPU are recorded, so that the current step can
/// finish. A thread waits for them; call it once per process, before any other thread starts.
/// SIGINT and SIGHUP stay ignored if they were. Signals come to the process, so these flags are the
/// program's, not the library's. Output into a closed pipe becomes an error.
void install_run_signals(int exit_signal = 0);
[[nodiscard]] bool stop_requested();  ///< SIGUSR1, SIGUSR2, or the exit signal
/// Acts as if SIGTERM had come, because a launcher will send it. Safe from any thread.
void announce_sigterm();
/// The first of SIGTERM (also sent by a launcher that lost a rank), SIGINT, SIGHUP and SIGXCPU that
/// came; 0: none.
[[nodiscard]] int ending_signal();
/// Whether announce_sigterm() came first.
[[nodiscard]] bool ending_was_announced();
/// Seconds since ending_signal() came; 0 without one.
[[nodiscard]] double seconds_since_terminated();

}  // namespace vocabpipe
