// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe {

/// SIGUSR1: finish the step and end cleanly. SIGTERM: so too, but a launcher that lost a rank may
/// be behind it: a rank that waits for others ends at once and says for whom. A handler can only
/// set a flag of the process, so these flags are the program's, not the library's.
void install_run_signals();
[[nodiscard]] bool stop_requested();
[[nodiscard]] bool terminated();

}  // namespace vocabpipe
