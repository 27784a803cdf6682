// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::testing {

/// Runs `work`, which must throw exactly an `Expected`; returns its message, "" if it did not.
template <class Expected, class Work>
std::string message_of(const Work& work) {
    try {
        work();
    } catch (const Expected& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        return error.what();
    } catch (const std::exception& error) {
        ADD_FAILURE() << "another exception: " << error.what();
        return {};
    }
    ADD_FAILURE() << "no exception";
    return {};
}

}  // namespace vocabpipe::testing
