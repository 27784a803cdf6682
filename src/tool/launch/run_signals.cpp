// SPDX-License-Identifier: Apache-2.0
#include "src/tool/launch/run_signals.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <thread>
#include <utility>

namespace vocabpipe {

namespace {

std::atomic<bool> stop_flag = false;
/// The first of SIGTERM, SIGINT, SIGHUP and SIGXCPU.
std::atomic<int> ending = 0;
/// When it came, on the monotonic clock; 0: never.
std::atomic<int64_t> terminated_at_ns = 0;
std::atomic<int64_t> interrupted_at_ns = 0;  ///< the same for SIGINT
std::atomic<bool> announced = false;

/// Signals that nohup or a shell's `&` had ignored when the program began.
struct IgnoredAtStart {
    bool interrupt = false, hang_up = false;
};
IgnoredAtStart ignored_at_start;

/// Runs before the constructors of libraries, as that of UCX, which MPI loads, takes SIGHUP.
/// Sanitizers are not ready yet.
__attribute__((no_sanitize("address", "thread", "undefined"))) void look_what_is_ignored(int,
                                                                                         char**,
                                                                                         char**) {
    struct sigaction given {};
    ignored_at_start.interrupt =
        sigaction(SIGINT, nullptr, &given) == 0 && given.sa_handler == SIG_IGN;
    ignored_at_start.hang_up =
        sigaction(SIGHUP, nullptr, &given) == 0 && given.sa_handler == SIG_IGN;
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**, char**) = look_what_is_ignored;

int64_t monotonic_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void end_by(int signal) {
    int64_t never = 0;
    if (terminated_at_ns.compare_exchange_strong(never, monotonic_ns())) ending = signal;
}

sigset_t set_of(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    return set;
}

/// A second Ctrl-C ends the process at once. `timeout` and similar launchers send the first one
/// twice: to the process and to its group.
void interrupt() {
    constexpr int64_t kSameNs = 200'000'000;
    int64_t first = 0;
    if (interrupted_at_ns.compare_exchange_strong(first, monotonic_ns())) return end_by(SIGINT);
    if (monotonic_ns() - first < kSameNs) return;
    const sigset_t set = set_of({SIGINT});
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    raise(SIGINT);
}

void take(int signal, const sigset_t& stopping) {
    if (sigismember(&stopping, signal) == 1) {
        stop_flag = true;
    } else if (signal == SIGINT) {
        interrupt();
    } else {
        end_by(signal);
    }
}

}  // namespace

void install_run_signals(int exit_signal) {
    sigset_t stopping = set_of({SIGUSR1, SIGUSR2});
    sigset_t set = set_of({SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU});
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU}) std::signal(signal, SIG_DFL);
    for (const auto& [signal, ignored] : {std::pair{SIGINT, ignored_at_start.interrupt},
                                          std::pair{SIGHUP, ignored_at_start.hang_up}}) {
        if (ignored) {
            std::signal(signal, SIG_IGN);
        } else {
            sigaddset(&set, signal);
        }
    }
    if (exit_signal != 0) {
        std::signal(exit_signal, SIG_DFL);
        sigaddset(&stopping, exit_signal);
        sigaddset(&set, exit_signal);
    }
    // A closed pipe then is an error of the write, and the step is saved; a file beyond `ulimit -f`
    // is an error with its name.
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);

    // Threads inherit the mask. A handler would run on the stack of the thread that it interrupts,
    // in the middle of any call, and kernels of a library may have pointed it into the heap.
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::thread([set, stopping] {
        sigset_t all;  // this thread must not take a signal that others wait for
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        for (int signal = 0;;) {
            if (sigwait(&set, &signal) == 0) take(signal, stopping);
        }
    }).detach();
}

void announce_sigterm() {
    int64_t never = 0;
    if (!terminated_at_ns.compare_exchange_strong(never, monotonic_ns())) return;
    announced = true;
    ending = SIGTERM;
}

bool stop_requested() {
    return stop_flag;
}
int ending_signal() {
    return ending;
}
bool ending_was_announced() {
    return announced;
}
double seconds_since_terminated() {
    const int64_t at = terminated_at_ns;
    return at == 0 ? 0 : static_cast<double>(monotonic_ns() - at) * 1e-9;
}

}  // namespace vocabpipe
