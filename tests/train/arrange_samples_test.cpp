// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/arrange_samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

namespace vocabpipe::testing {
namespace {

std::vector<int> short_first(std::vector<int> lengths) {
    std::ranges::reverse(lengths);
    return lengths;
}

/// Length of every microbatch: of its longest sample.
std::vector<int64_t> lengths_of(const std::vector<int64_t>& samples, const std::vector<int>& places,
                                int64_t per_microbatch) {
    std::vector<int64_t> lengths(places.size() / static_cast<size_t>(per_microbatch));
    for (size_t place = 0; place < places.size(); ++place) {
        int64_t& longest = lengths[place / static_cast<size_t>(per_microbatch)];
        longest = std::max(longest, samples[static_cast<size_t>(places[place])]);
    }
    return lengths;
}

TEST(ArrangeByLength, PutsSamplesOfNearlyOneLengthTogether) {
    const ArrangeSamples arrange = arrange_by_length({64, 32, 8}, short_first);
    const std::vector<int64_t> samples{8, 64, 8, 32, 8, 8, 32, 8};
    // Sorted: 1; 3, 6; 0, 2, 4, 5, 7. In pairs: (1 3) (6 0) (2 4) (5 7), the shortest first.
    EXPECT_EQ(arrange(samples, 2), (std::vector<int>{2, 4, 5, 7, 6, 0, 1, 3}));
}

TEST(ArrangeByLength, PadsAsLittleAsAnyArrangement) {
    std::mt19937 random(5);
    const ArrangeSamples arrange = arrange_by_length({64, 32, 8}, short_first);
    constexpr std::array<int64_t, 3> kLengths{8, 32, 64};
    for (int round = 0; round < 200; ++round) {
        std::vector<int64_t> samples(6);
        for (int64_t& length : samples) length = kLengths[random() % 3];
        const std::vector<int> places = arrange(samples, 2);
        const auto tokens = [&](const std::vector<int>& order) {
            const std::vector<int64_t> lengths = lengths_of(samples, order, 2);
            return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
        };
        std::vector<int> order(samples.size());
        std::iota(order.begin(), order.end(), 0);
        ASSERT_TRUE(std::ranges::is_permutation(places, order));
        int64_t least = tokens(order);
        do {
            least = std::min(least, tokens(order));
        } while (std::ranges::next_permutation(order).found);
        ASSERT_EQ(tokens(places), least);
    }
}

TEST(ArrangeByLength, HasOneOrderForEveryMultiset) {
    int asked = 0;
    const ArrangeSamples arrange = arrange_by_length({64, 8}, [&](std::vector<int> lengths) {
        ++asked;
        return short_first(std::move(lengths));
    });
    std::vector<int64_t> samples{64, 8, 8, 64, 8, 8, 8, 8};
    std::set<std::vector<int64_t>> orders;
    std::mt19937 random(5);
    for (int i = 0; i < 20; ++i) {
        std::ranges::shuffle(samples, random);
        orders.insert(lengths_of(samples, arrange(samples, 2), 2));
    }
    EXPECT_EQ(orders, (std::set<std::vector<int64_t>>{{8, 8, 8, 64}}));
    EXPECT_EQ(asked, 1);
}

TEST(ArrangeByLength, RefusesASampleOfAnotherLength) {
    const ArrangeSamples arrange = arrange_by_length({64, 8}, short_first);
    EXPECT_THROW(arrange(std::vector<int64_t>{64, 9}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace vocabpipe::testing
