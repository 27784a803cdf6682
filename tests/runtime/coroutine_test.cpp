// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/coroutine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;

TEST(Coroutine, RunsInTurnsWithItsCaller) {
    Coroutine coroutine;
    std::vector<int> order;
    EXPECT_FALSE(coroutine.is_suspended());
    coroutine.start([&] {
        EXPECT_TRUE(coroutine.is_inside());
        order.push_back(1);
        coroutine.suspend();
        order.push_back(3);
        coroutine.suspend();
        order.push_back(5);
    });
    order.push_back(2);
    EXPECT_TRUE(coroutine.is_suspended());
    EXPECT_FALSE(coroutine.is_inside());
    coroutine.resume();
    order.push_back(4);
    coroutine.resume();
    EXPECT_FALSE(coroutine.is_suspended());
    EXPECT_THAT(order, ElementsAre(1, 2, 3, 4, 5));
    coroutine.start([&] { order.push_back(6); });  // on the same stack
    EXPECT_EQ(order.back(), 6);
}

TEST(Coroutine, HandsErrorsToTheCallerThatRunsIt) {
    Coroutine coroutine;
    EXPECT_THROW(coroutine.start([] { throw std::runtime_error("at once"); }), std::runtime_error);
    coroutine.start([&] {
        try {
            throw std::logic_error("caught inside");
        } catch (const std::logic_error&) {  // NOLINT(bugprone-empty-catch)
        }
        coroutine.suspend();
        throw std::runtime_error("later");
    });
    EXPECT_THROW(coroutine.resume(), std::runtime_error);
    EXPECT_FALSE(coroutine.is_suspended());
}

/// Says when it goes.
struct Guard {
    std::vector<std::string>& gone;
    std::string name;
    ~Guard() { gone.push_back(name); }
};

TEST(Coroutine, UnwindsWhatIsSuspendedWhileAnErrorOfItsCallerPropagates) {
    std::vector<std::string> gone;
    const auto run = [&] {
        Coroutine coroutine;
        const Guard before{gone, "caller"};
        coroutine.start([&] {
            const Guard outer{gone, "outer"};
            const std::string on_the_heap(1000, 'x');
            try {
                const Guard inner{gone, "inner"};
                coroutine.suspend();
                gone.emplace_back("went on");
            } catch (const std::exception&) {
                gone.emplace_back("took it for an error");
            }
        });
        throw std::runtime_error("the caller's");
    };
    EXPECT_THROW(run(), std::runtime_error);
    EXPECT_THAT(gone, ElementsAre("caller", "inner", "outer"));
}

TEST(Coroutine, HasTheStackOfAThread) {
    Coroutine coroutine;
    size_t sum = 0;
    coroutine.start([&] {
        std::array<char, size_t{4} << 20> large;  // half of it
        std::memset(large.data(), 1, large.size());
        coroutine.suspend();
        for (const char one : large) sum += static_cast<size_t>(one);
    });
    coroutine.resume();
    EXPECT_EQ(sum, size_t{4} << 20);
}

}  // namespace
}  // namespace vocabpipe
