// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <thread>

namespace vocabpipe::testing {

/// Tells one of the ranks that ask, for ever, from the given number of questions of all ranks on.
class OneRank {
public:
    explicit OneRank(int first) : first_(first) {}
    bool operator()() {
        const auto self = std::this_thread::get_id();
        const std::lock_guard lock(mutex_);
        if (++asked_ == first_) told_ = self;
        return told_ == self;
    }
    [[nodiscard]] bool is_told() const { return told_ != std::thread::id(); }

private:
    const int first_;
    std::mutex mutex_;
    int asked_ = 0;
    std::thread::id told_;
};

}  // namespace vocabpipe::testing
