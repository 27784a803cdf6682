// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace vocabpipe::tool {

/// Says on standard error that work which reports nothing itself goes on: after two seconds, then
/// ever less often; on a terminal in one line, every second, which is erased with the object.
class LongWork {
public:
    /// "simulating v-half".
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
