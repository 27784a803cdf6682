// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/long_work.hpp"

#include "src/tool/support/text.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

namespace vocabpipe::tool {

namespace {

using Seconds = std::chrono::seconds;

constexpr Seconds kSilence{2};
constexpr int kEverLess = 3;  // 2 s, 6 s, 18 s, ...: a log keeps every line

}  // namespace

LongWork::LongWork(std::string what) : what_(std::move(what)) {
    try {
        thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    } catch (const std::system_error&) {
        // No thread could be started: the work itself needs none.
    }
}

LongWork::~LongWork() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
}

void LongWork::watch(const std::stop_token& stop) {
    const auto begun = std::chrono::steady_clock::now();
    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    bool visible = false;
    std::unique_lock lock(mutex_);
    for (Seconds at = kSilence;; at = terminal ? at + Seconds{1} : at * kEverLess) {
        ended_.wait_until(lock, stop, begun + at, [] { return false; });
        if (stop.stop_requested()) break;
        std::fprintf(stderr, terminal ? "\r\033[K%s: %lld s" : "vocabpipe: still %s after %lld s\n",
                     one_line(what_).c_str(), static_cast<long long>(at.count()));
        std::fflush(stderr);
        visible = terminal;
    }
    if (!visible) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
}

}  // namespace vocabpipe::tool
