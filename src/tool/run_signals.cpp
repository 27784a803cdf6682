// SPDX-License-Identifier: Apache-2.0
#include "src/tool/run_signals.hpp"

#include <csignal>

namespace vocabpipe {

namespace {

volatile std::sig_atomic_t stop_flag = 0;
volatile std::sig_atomic_t terminate_flag = 0;

void on_stop(int) {
    stop_flag = 1;
}
void on_terminate(int) {
    terminate_flag = 1;
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
}

}  // namespace

void install_run_signals() {
    handle(SIGUSR1, on_stop);
    handle(SIGTERM, on_terminate);
    handle(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f`: an error with its name instead
}

bool stop_requested() {
    return stop_flag != 0 || terminate_flag != 0;
}
bool terminated() {
    return terminate_flag != 0;
}

}  // namespace vocabpipe
