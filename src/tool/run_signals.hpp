// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe {

/// SIGUSR1: finish the step and end cleanly. SIGTERM: a launcher that lost a rank (or a person)
/// wants this process to end; a rank that waits says for whom. A handler can only set a flag of the
/// process, so these flags are the program's, not the library's.
void install_run_signals();
[[nodiscard]] bool stop_requested();
[[nodiscard]] bool terminated();

}  // namespace vocabpipe
