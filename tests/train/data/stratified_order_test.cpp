// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/stratified_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

int64_t sum(const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

TEST(StratifiedOrder, VisitsEverySampleOnceInEveryEpoch) {
    for (const std::vector<int64_t>& counts :
         {std::vector<int64_t>{1}, {5}, {1, 1}, {3, 1, 20}, {100, 1000, 7}, {64, 128, 256, 512}}) {
        const StratifiedOrder order(counts, 7);
        const int64_t samples = sum(counts);
        std::vector<int64_t> first;
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
            std::vector<int64_t> visited;
            for (int64_t i = 0; i < samples; ++i) visited.push_back(order(epoch * samples + i));
            if (epoch == 0) first = visited;
            if (epoch > 0 && samples > 20) {
                EXPECT_NE(visited, first);
            }
            std::ranges::sort(visited);
            for (int64_t i = 0; i < samples; ++i) ASSERT_EQ(visited[static_cast<size_t>(i)], i);
        }
    }
}

TEST(StratifiedOrder, GivesEveryStepTheKindsInTheirShares) {
    const std::vector<int64_t> counts{700, 2000, 5000, 12345};
    const StratifiedOrder order(counts, 3);
    const auto samples = static_cast<double>(sum(counts));
    for (const int step : {8, 64, 1000}) {
        for (int64_t begin = 0; begin < 3 * 20045; begin += step) {
            int64_t first = 0;
            for (const int64_t count : counts) {
                int64_t given = 0;
                for (int64_t i = begin; i < begin + step; ++i) {
                    given += order(i) >= first && order(i) < first + count ? 1 : 0;
                }
                const double share = step * static_cast<double>(count) / samples;
                ASSERT_NEAR(static_cast<double>(given), share, 4) << step << " from " << begin;
                first += count;
            }
        }
    }
}

TEST(StratifiedOrder, IsThatOfSampleOrderForOneKind) {
    const StratifiedOrder order({1000}, 42);
    const SampleOrder plain(1000, 42);
    for (int64_t i = 0; i < 2500; ++i) ASSERT_EQ(order(i), plain(i));
    const StratifiedOrder unshuffled({3, 4}, 42, false);
    for (int64_t i = 0; i < 20; ++i) ASSERT_EQ(unshuffled(i), i % 7);
}

TEST(StratifiedOrder, RefusesMoreSamplesThanItCanNumber) {
    EXPECT_THROW(StratifiedOrder({2'000'000'000, 1'000'000'001}, 1), UsageError);
    const StratifiedOrder order({2'000'000'000, 1'000'000'000}, 1);
    EXPECT_LT(order(2'999'999'999), 3'000'000'000);
    EXPECT_GE(order(2'999'999'999), 0);
}

}  // namespace
}  // namespace vocabpipe
