// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

namespace vocabpipe::tool {

/// Learns early that Open MPI's launcher is about to end its ranks. On Ctrl-C, SIGTERM, SIGHUP,
/// output that nobody reads or a lost rank it wakes them with SIGCONT, waits
/// odls_base_sigkill_timeout seconds in which it does and reads nothing else, sends SIGTERM, waits
/// as long again, and kills. While this lives, its SIGCONT is announce_sigterm(): that is twice the
/// time, and no rank has filled the launcher's pipe by then.
///
/// A SIGCONT after the process stood still (a batch system that suspends jobs) only wakes.
///
/// To be made before other threads: they inherit that SIGCONT is blocked.
class LauncherWatch {
public:
    LauncherWatch();
    LauncherWatch(const LauncherWatch&) = delete;
    LauncherWatch& operator=(const LauncherWatch&) = delete;

private:
    std::jthread thread_;
};

}  // namespace vocabpipe::tool
