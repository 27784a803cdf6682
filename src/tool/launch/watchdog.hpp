// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace vocabpipe::tool {

/// Calls `expired` on a thread of its own unless it is destroyed within `seconds`: for calls
/// without a deadline that cannot be ended, such as MPI_Init. `expired` can then only report that
/// and end the process.
class Watchdog {
public:
    Watchdog(double seconds, std::function<void()> expired);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

private:
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::jthread thread_;
};

}  // namespace vocabpipe::tool
