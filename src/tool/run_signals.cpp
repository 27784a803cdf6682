// SPDX-License-Identifier: Apache-2.0
#include "src/tool/run_signals.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace vocabpipe {

namespace {

volatile std::sig_atomic_t stop_flag = 0;
/// The first of SIGTERM, SIGINT and SIGHUP.
volatile std::sig_atomic_t ending = 0;
/// When it came, on the monotonic clock; 0: never.
std::atomic<int64_t> terminated_at_ns = 0;
std::atomic<int64_t> interrupted_at_ns = 0;  ///< the same of SIGINT
std::atomic<bool> announced = false;
static_assert(std::atomic<int64_t>::is_always_lock_free);  // a handler may touch nothing else

int64_t monotonic_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void on_stop(int) {
    stop_flag = 1;
}
void on_end(int signal) {
    int64_t never = 0;
    if (terminated_at_ns.compare_exchange_strong(never, monotonic_ns())) ending = signal;
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
}

/// Who presses Ctrl-C twice does not want to wait. A launcher that sends it to the process and to
/// its group (`timeout` does) has sent it once.
void on_interrupt(int signal) {
    constexpr int64_t kSameNs = 200'000'000;
    int64_t first = 0;
    if (interrupted_at_ns.compare_exchange_strong(first, monotonic_ns())) return on_end(signal);
    if (monotonic_ns() - first < kSameNs) return;
    handle(signal, SIG_DFL);
    raise(signal);
}

}  // namespace

void install_run_signals() {
    handle(SIGUSR1, on_stop);
    handle(SIGTERM, on_end);
    handle(SIGINT, on_interrupt);
    struct sigaction given {};
    sigaction(SIGHUP, nullptr, &given);
    if (given.sa_handler != SIG_IGN) handle(SIGHUP, on_end);  // nohup's word goes first
    handle(SIGPIPE, SIG_IGN);  // a reader that went away: an error of the write, the step is saved
    handle(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f`: an error with its name instead
}

void announce_sigterm() {
    int64_t never = 0;
    if (!terminated_at_ns.compare_exchange_strong(never, monotonic_ns())) return;
    announced = true;
    ending = SIGTERM;
}

bool stop_requested() {
    return stop_flag != 0;
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
