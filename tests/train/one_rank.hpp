// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

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

/// What a run says that one rank's SIGTERM ends, at that question; "" where it came to its end
/// before.
template <typename Run>
std::string sigterm_of_one_rank(TrainOptions options, int asked, const Run& run) {
    OneRank told(asked);
    options.terminated = [&] { return told() ? SIGTERM : 0; };
    try {
        run(std::move(options));
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::terminated);
        return error.what();
    }
    EXPECT_FALSE(told.is_told()) << "nobody listened";
    return "";
}

}  // namespace vocabpipe::testing
