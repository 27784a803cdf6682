// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe {

/// SIGUSR1 and SIGTERM are noted, for the step that runs to be finished. A handler can only set a
/// flag of the process, so these flags are the program's, not the library's.
void install_run_signals();
[[nodiscard]] bool stop_requested();  ///< SIGUSR1
[[nodiscard]] bool terminated();      ///< SIGTERM, of a launcher too that lost a rank
/// Since SIGTERM; 0 without one.
[[nodiscard]] double seconds_since_terminated();

}  // namespace vocabpipe
