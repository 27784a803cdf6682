// SPDX-License-Identifier: Apache-2.0
// split_layers() against a walk over all ways.
#include "src/step/split_layers.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ThrowsMessage;

double costliest_stage(const std::vector<double>& costs, const std::vector<int>& layers) {
    double most = 0;
    for (auto first = costs.begin(); const int count : layers) {
        most = std::max(most, std::reduce(first, first + count));
        first += count;
    }
    return most;
}

/// All ways to give `layers` layers to `stages` stages, those with longer earlier stages first.
std::vector<std::vector<int>> every_split(int layers, int stages) {
    if (stages == 1) return {{layers}};
    std::vector<std::vector<int>> all;
    for (int first = layers - stages + 1; first >= 1; --first) {
        for (const std::vector<int>& rest : every_split(layers - first, stages - 1)) {
            all.push_back({first});
            all.back().insert(all.back().end(), rest.begin(), rest.end());
        }
    }
    return all;
}

TEST(SplitLayers, IsTheFirstBestOfAllWays) {
    std::mt19937 random(11);
    for (int i = 0; i < 2000; ++i) {
        std::vector<double> costs;
        // Whole numbers, whose sums are exact in any order; with few of them ties are common.
        const auto kinds = 1 + random() % 9;
        for (auto left = 1 + random() % 9; left > 0; --left) {
            costs.push_back(static_cast<double>(1 + random() % kinds));
        }
        const int count = static_cast<int>(costs.size());
        const int stages = static_cast<int>(1 + random() % costs.size());
        const auto ways = every_split(count, stages);
        const auto best = std::ranges::min_element(
            ways, {}, [&](const std::vector<int>& way) { return costliest_stage(costs, way); });
        ASSERT_EQ(split_layers(costs, stages), *best)
            << ::testing::PrintToString(costs) << " among " << stages;
    }
}

TEST(SplitLayers, TakesCostsOfAnySize) {
    EXPECT_THAT(split_layers(std::vector{1e300, 1e300, 1e300}, 2), ElementsAre(2, 1));
    EXPECT_THAT(split_layers(std::vector{1e-300, 1e-300, 1e-300}, 2), ElementsAre(2, 1));
    EXPECT_THAT(split_layers(std::vector{0.1, 0.2, 0.3, 0.3, 0.2, 0.1}, 2), ElementsAre(3, 3));
    // Sums of numbers that are not exact.
    for (int layers = 1; layers <= 60; ++layers) {
        for (int stages = 1; stages <= layers; ++stages) {
            const std::vector<int> split =
                split_layers(std::vector<double>(static_cast<size_t>(layers), 0.1), stages);
            ASSERT_EQ(std::ssize(split), stages);
            ASSERT_EQ(std::reduce(split.begin(), split.end()), layers);
            ASSERT_GE(std::ranges::min(split), 1);
            ASSERT_EQ(std::ranges::max(split), (layers + stages - 1) / stages);
        }
    }
}

TEST(SplitLayers, RefusesMoreStagesThanLayers) {
    EXPECT_THAT(
        [] {
            (void)split_layers(std::vector{1.0, 1.0}, 3);
        },
        ThrowsMessage<UsageError>(
            "ModelConfig::model_forward: 2 layers for a schedule of 3 stages, which need "
            "one each; call pipeline_stage() at least 2 times, or use fewer stages"));
}

}  // namespace
}  // namespace vocabpipe::testing
