// SPDX-License-Identifier: Apache-2.0
#include "src/tool/launch/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <utility>

namespace vocabpipe::tool {

namespace {

constexpr double kLongest = 1e9;  // seconds, some 30 years: sums with clocks would overflow beyond

}  // namespace

Watchdog::Watchdog(double seconds, std::function<void()> expired) {
    const std::chrono::duration<double> limit(std::min(seconds, kLongest));
    thread_ = std::jthread([this, limit, expired = std::move(expired)](std::stop_token stop) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, stop, limit, [] { return false; });
        if (!stop.stop_requested()) expired();
    });
}

Watchdog::~Watchdog() {
    thread_.request_stop();
    thread_.join();
}

}  // namespace vocabpipe::tool
