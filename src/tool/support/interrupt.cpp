// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/interrupt.hpp"

#include <csignal>

namespace vocabpipe::tool {

namespace {

volatile std::sig_atomic_t received = 0;  // all that a signal handler can reach

void note(int signal) {
    received = signal;
}

}  // namespace

InterruptGuard::InterruptGuard() {
    received = 0;
    std::signal(SIGINT, note);
    std::signal(SIGTERM, note);
    if (std::signal(SIGHUP, note) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // as nohup set it
}

InterruptGuard::~InterruptGuard() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    if (std::signal(SIGHUP, SIG_DFL) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

int InterruptGuard::signal() const {
    return static_cast<int>(received);
}

void InterruptGuard::check() const {
    if (signal() != 0) throw Interrupted{signal()};
}

}  // namespace vocabpipe::tool
