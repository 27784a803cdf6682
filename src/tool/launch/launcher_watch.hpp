// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

namespace vocabpipe::tool {

/// Notices early that Open MPI's launcher is about to end its ranks. On Ctrl-C, SIGTERM, SIGHUP,
/// output that nobody reads or a lost rank, the launcher wakes its ranks with SIGCONT, waits
/// odls_base_sigkill_timeout seconds without reading their output, sends SIGTERM, waits as long
/// again, and kills. While this object lives, its SIGCONT calls announce_sigterm(): this doubles
/// the time, and no rank has filled the launcher's pipe yet.
///
/// A SIGCONT after the process was stopped (by a batch system that suspends jobs) only wakes it.
///
/// Create it before other threads: they inherit the blocked SIGCONT.
class LauncherWatch {
public:
    LauncherWatch();
    LauncherWatch(const LauncherWatch&) = delete;
    LauncherWatch& operator=(const LauncherWatch&) = delete;

private:
    std::jthread thread_;
};

}  // namespace vocabpipe::tool
