// SPDX-License-Identifier: Apache-2.0
#include "src/tool/launch/launcher_watch.hpp"

#include "src/tool/launch/run_signals.hpp"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <stop_token>

namespace vocabpipe::tool {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{50};
/// If the thread missed looks for this long, the process was stopped or had no core; then only
/// SIGTERM itself counts.
constexpr milliseconds kStoodStill{500};
/// A SIGCONT within this time after a stop may be the one that ended it.
constexpr milliseconds kWaking{500};

void watch(const std::stop_token& stop, const sigset_t& wakes) {
    constexpr timespec look{0, std::chrono::nanoseconds(kLook).count()};
    Clock::time_point seen = Clock::now();
    Clock::time_point woke = seen - kWaking;
    while (!stop.stop_requested()) {
        siginfo_t from{};
        const int signal = sigtimedwait(&wakes, &from, &look);
        const Clock::time_point now = Clock::now();
        if (now - seen > kStoodStill) woke = now;
        seen = now;
        if (signal == SIGCONT && from.si_pid == ::getppid() && now - woke >= kWaking) {
            announce_sigterm();
        }
    }
}

}  // namespace

LauncherWatch::LauncherWatch() {
    sigset_t wakes;
    sigemptyset(&wakes);
    sigaddset(&wakes, SIGCONT);
    pthread_sigmask(SIG_BLOCK, &wakes, nullptr);
    thread_ = std::jthread([wakes](const std::stop_token& stop) { watch(stop, wakes); });
}

}  // namespace vocabpipe::tool
