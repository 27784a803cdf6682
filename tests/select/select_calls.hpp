// SPDX-License-Identifier: Apache-2.0
// For tests of the public interface of selection.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {

/// The AgreedError of `work`, which must throw the same on every rank. Another error, or one of
/// some ranks alone, fails.
inline std::string agreed_error_of(const std::function<void(Communicator&)>& work, ExitCode code,
                                   int ranks = 2) {
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    World::threads(ranks).run([&](Communicator& world) {
        try {
            work(world);
        } catch (const AgreedError& error) {
            EXPECT_EQ(error.exit_code(), code) << error.what();
            errors[static_cast<size_t>(world.rank())] = error.what();
        }
    });
    EXPECT_FALSE(errors.front().empty()) << "no error";
    EXPECT_THAT(errors, ::testing::Each(errors.front()));
    return errors.front();
}

/// Gives an environment variable another value for a while.
class Variable {
public:
    Variable(const char* name, const std::string& value) : name_(name) {
        if (const char* const before = std::getenv(name)) before_ = before;
        ::setenv(name, value.c_str(), 1);
    }
    ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    const char* name_;
    std::optional<std::string> before_;
};

/// The phases that ranks report.
class Phases {
public:
    /// For the options of one rank, or of all.
    std::function<void(const char*, int64_t, int64_t)> taker() {
        return [this](const char* phase, int64_t done, int64_t total) {
            const std::lock_guard lock(mutex_);
            EXPECT_GE(done, 0);
            EXPECT_TRUE(total == 0 || done <= total) << phase << done << ' ' << total;
            names_.insert(phase);
            if (done == 0) ++begun_[phase];
        };
    }
    [[nodiscard]] const std::set<std::string>& names() const { return names_; }
    /// How often a phase began.
    [[nodiscard]] int begun(const std::string& phase) const {
        const auto found = begun_.find(phase);
        return found == begun_.end() ? 0 : found->second;
    }

private:
    std::mutex mutex_;
    std::set<std::string> names_;
    std::map<std::string, int> begun_;
};

}  // namespace vocabpipe::testing
