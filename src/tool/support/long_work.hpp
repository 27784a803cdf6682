// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace vocabpipe::tool {

/// Reports on standard error that work without progress of its own goes on: after two seconds, then
/// at growing intervals; on a terminal every second in one line, which the destructor erases.
class LongWork {
public:
    /// `what`: such as "simulating v-half".
    explicit LongWork(std::string what);
    ~LongWork();
    LongWork(const LongWork&) = delete;
    LongWork& operator=(const LongWork&) = delete;

private:
    void watch(const std::stop_token& stop);

    std::string what_;
    std::mutex mutex_;
    std::condition_variable_any ended_;
    std::jthread thread_;
};

}  // namespace vocabpipe::tool
