// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/clock_alignment.hpp"

#include "src/runtime/wait.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <mutex>

namespace vocabpipe {
namespace {

TEST(ClockAlignment, BoundsAClockByEveryRoundAndTakesTheMiddle) {
    ClockReadings first{};
    ClockReadings second{};
    for (size_t i = 0; i < kClockRounds; ++i) {
        const auto at = static_cast<int64_t>(1000 * i);
        first[i] = {at, at + 100};
        second[i] = {at + 5000 + 10,
                     at + 5000 + 90};  // 5000 ahead, in by 10 later, out by 10 sooner
    }
    EXPECT_EQ(clocks_ahead(std::array<uint64_t, 2>{1, 2}, std::array{first, second}),
              (std::vector<int64_t>{0, 5000}));
    // A round that took long says less and changes nothing; a tighter one narrows the bounds.
    first[3].leave_ns += 900;
    second[5] = {5000 + 5000 + 60, 5000 + 5000 + 70};  // at least 4960, at most 5070
    EXPECT_EQ(clocks_ahead(std::array<uint64_t, 2>{1, 2}, std::array{first, second}).back(), 5015);
}

TEST(ClockAlignment, TakesOneClockPerHost) {
    ClockReadings first{};
    ClockReadings second{};
    ClockReadings third{};
    for (size_t i = 0; i < kClockRounds; ++i) {
        first[i] = {0, 100};
        second[i] = {1000, 1100};
        third[i] = {1040, 1060};
    }
    EXPECT_EQ(
        clocks_ahead(std::array<uint64_t, 4>{1, 2, 2, 1}, std::array{first, second, third, second}),
        (std::vector<int64_t>{0, 1000, 1000, 0}));
}

TEST(ClockAlignment, FindsWhatTheClocksOfOtherHostsAreAheadWithinARoundTrip) {
    const std::array<int64_t, 3> truth{0, 7'000'000'000, -3'000'000'000};
    std::mutex mutex;
    std::vector<std::vector<int64_t>> found;
    World::threads(3, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        const auto rank = static_cast<size_t>(communicator.rank());
        std::vector<int64_t> mine =
            clocks_ahead_of_rank_0(communicator, rank + 1, [&] { return now_ns() + truth[rank]; });
        const std::lock_guard lock(mutex);
        found.push_back(std::move(mine));
    });
    ASSERT_EQ(found.size(), 3U);
    for (const std::vector<int64_t>& one : found) {
        EXPECT_EQ(one, found.front());
        // Threads of a busy machine meet within milliseconds in one of sixteen rounds.
        for (size_t rank = 0; rank < 3; ++rank) {
            EXPECT_LE(std::abs(one[rank] - truth[rank]), 5'000'000) << "nanoseconds";
        }
    }
}

TEST(ClockAlignment, OfRanksOnOneHostIsNothing) {
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        EXPECT_EQ(clocks_ahead_of_rank_0(communicator), (std::vector<int64_t>{0, 0}));
    });
}

}  // namespace
}  // namespace vocabpipe
