// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe::tool {

/// Thrown to unwind, and so to remove temporary files, after SIGINT, SIGTERM or SIGHUP. The exit
/// code is 128 + signal.
struct Interrupted {
    int signal;
};

/// While it lives, SIGINT, SIGTERM and SIGHUP are noted and check() throws Interrupted. One at a
/// time.
class InterruptGuard {
public:
    InterruptGuard();
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;

    void check() const;
};

}  // namespace vocabpipe::tool
