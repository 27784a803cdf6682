// SPDX-License-Identifier: Apache-2.0
#include "src/tool/interrupt.hpp"

#include <csignal>

namespace vocabpipe::tool {

namespace {

volatile std::sig_atomic_t received = 0;  // a signal handler can reach nothing else

void note(int signal) {
    received = signal;
}

}  // namespace

InterruptGuard::InterruptGuard() {
    received = 0;
    std::signal(SIGINT, note);
    std::signal(SIGTERM, note);
}

InterruptGuard::~InterruptGuard() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
}

void InterruptGuard::check() const {
    if (received != 0) {
        throw Interrupted{static_cast<int>(received)};
    }
}

}  // namespace vocabpipe::tool
