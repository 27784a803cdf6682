// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe::tool {

/// Thrown after SIGINT, SIGTERM or SIGHUP to unwind and so remove temporary files. The exit code is
/// 128 + signal.
struct Interrupted {
    int signal;
};

/// While an object lives, SIGINT, SIGTERM and SIGHUP are recorded, and check() throws Interrupted.
/// Only one object at a time.
class InterruptGuard {
public:
    InterruptGuard();
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;

    void check() const;
    /// The signal that was received; 0: none. May be called from any thread.
    [[nodiscard]] int signal() const;
};

}  // namespace vocabpipe::tool
