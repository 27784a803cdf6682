// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/best_fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace vocabpipe {
namespace {

/// Best fit decreasing as its definition says it, with a search through all bins for each item: of
/// bins with equally little room, the one that got an item last.
std::vector<std::vector<uint32_t>> searched_bins(const std::vector<int32_t>& sizes,
                                                 const std::vector<int32_t>& capacities) {
    struct Bin {
        int32_t room;
        int touched;
        std::vector<uint32_t> items;
    };
    std::vector<uint32_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
    std::vector<Bin> bins;
    int now = 0;
    for (const uint32_t item : order) {
        Bin* best = nullptr;
        for (Bin& bin : bins) {
            if (bin.room < sizes[item]) continue;
            const bool better = best == nullptr || bin.room < best->room ||
                                (bin.room == best->room && bin.touched > best->touched);
            if (better) best = &bin;
        }
        if (best == nullptr) {
            best =
                &bins.emplace_back(Bin{*std::ranges::lower_bound(capacities, sizes[item]), 0, {}});
        }
        best->room -= sizes[item];
        best->touched = ++now;
        best->items.push_back(item);
    }
    std::vector<std::vector<uint32_t>> found;
    for (Bin& bin : bins) {
        std::ranges::sort(bin.items);
        found.push_back(bin.items);
    }
    std::ranges::sort(found);  // by their first items
    return found;
}

std::vector<std::vector<uint32_t>> packed_bins(const std::vector<int32_t>& sizes,
                                               const std::vector<int32_t>& capacities) {
    const Bins bins = best_fit(sizes, capacities);
    std::vector<std::vector<uint32_t>> found;
    for (size_t b = 0; b + 1 < bins.begin.size(); ++b) {
        found.emplace_back(bins.items.begin() + bins.begin[b],
                           bins.items.begin() + bins.begin[b + 1]);
    }
    return found;
}

TEST(BestFit, GivesTheBinsOfASearchThroughAllBins) {
    std::mt19937 random(5);
    for (const std::vector<int32_t>& capacities : {std::vector<int32_t>{1},
                                                   {2},
                                                   {7},
                                                   {63},
                                                   {64},
                                                   {65},
                                                   {300},
                                                   {5000},
                                                   {4, 9, 63},
                                                   {64, 128, 256},
                                                   {1, 2, 3, 5000}}) {
        const int32_t largest = capacities.back();
        for (int round = 0; round < 60; ++round) {
            std::vector<int32_t> sizes(random() % 200);
            const auto most = static_cast<uint32_t>(round % 3 == 0 ? largest : largest / 3 + 1);
            for (int32_t& size : sizes) {
                size = static_cast<int32_t>(1 + random() %
                                                    std::min(most, static_cast<uint32_t>(largest)));
            }
            ASSERT_EQ(packed_bins(sizes, capacities), searched_bins(sizes, capacities))
                << capacities.size() << " up to " << largest << ", round " << round;
        }
    }
}

TEST(BestFit, FillsBinsWholeWhereItCan) {
    EXPECT_EQ(packed_bins({3, 5, 8, 2, 6}, {8}),
              (std::vector<std::vector<uint32_t>>{{0, 1}, {2}, {3, 4}}));
    EXPECT_TRUE(packed_bins({}, {8}).empty());
}

TEST(BestFit, OpensTheSmallestBinThatIsEnough) {
    // 6 opens a bin of 8, into which a 2 goes; 3 and the other 2 open bins of 4 and 2.
    EXPECT_EQ(packed_bins({3, 6, 2, 2}, {2, 4, 8}),
              (std::vector<std::vector<uint32_t>>{{0}, {1, 2}, {3}}));
}

TEST(BestFit, RefusesWhatNoBinHolds) {
    const std::vector<int32_t> capacities{4, 8};
    EXPECT_THROW((void)best_fit(std::vector<int32_t>{9}, capacities), std::invalid_argument);
    EXPECT_THROW((void)best_fit(std::vector<int32_t>{0}, capacities), std::invalid_argument);
    EXPECT_THROW((void)best_fit(std::vector<int32_t>{-1}, capacities), std::invalid_argument);
}

}  // namespace
}  // namespace vocabpipe
